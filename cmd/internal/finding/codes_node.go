// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package finding

// nodeCodes are the codes that only node check, node swap and node back give.
var nodeCodes = []Code{
	{
		Code: "HF501", Level: Warn, Title: "the running kubelet was started with a command line other than the unit's, or no kubelet runs", By: []string{"node check"},
		About: []string{
			"A swap starts the kubelet with the command line that the unit and its environment files define now. This finding means that the running kubelet has another command line, because these files were changed after it was started, or that no kubelet runs. All other checks use the unit's command line.",
			"If the change is intended, continue. Otherwise correct the unit and its files, and check again.",
		},
	},
	{
		Code: "HF502", Level: Stop, Title: "systemd has not loaded the changed files of the kubelet's unit", By: []string{"node check"},
		About: []string{
			"The unit's file or a drop-in was changed, but systemd has not read the change. Until the next boot, systemd starts the kubelet with the old version of the unit, and afterwards with the new version.",
			"Run `systemctl daemon-reload` and check again. This does not restart the kubelet.",
		},
	},
	{
		Code: "HF503", Level: Stop, Title: "the kubelet's unit does not start a kubelet binary directly", By: []string{"node check"},
		About: []string{
			"A swap replaces the file that `ExecStart=` names. The finding says why this is not possible: the unit does not exist, or the program cannot find out which file the unit starts, or that file is not a kubelet binary. For example, the file is hyperkube, a symbolic link, a script that starts the kubelet, or a program (docker or rkt) that starts the kubelet in a container.",
			"Change the unit so that `ExecStart=` names a kubelet binary, restart the old kubelet with this unit, and check again.",
		},
	},
	{
		Code: "HF504", Level: Stop, Title: "there is not enough space for the new kubelet or for the copy of the old kubelet, or the file system is read-only", By: []string{"node check", "node swap"},
		About: []string{
			"A swap writes the new kubelet into the folder of the old kubelet, and saves the old kubelet in `/usr/lib/holdfast/kept`. One of these two folders is on a file system that is read-only or full.",
			"The program has changed nothing on the node. Free some space. If `/usr` is read-only, change the unit so that it starts a kubelet on a writable file system, and name a folder on that file system with `--keep-in`.",
		},
	},
	{
		Code: "HF505", Level: Stop, Title: "the file is not the expected kubelet", By: []string{"node check", "node swap", "node back"},
		About: []string{
			"`node swap` accepts only Holdfast's kubelet. `node back` accepts only the saved kubelet, with the SHA-256 that it had when it was saved. The file (the kubelet that you named, or the saved kubelet) is missing, is not a program for this machine, is of another release, or was changed.",
		},
	},
	{
		Code: "HF506", Level: Stop, Title: "swap space is enabled on the machine", By: []string{"node check"},
		About: []string{
			"Kubelets from 1.8 on do not start while swap space is enabled.",
			"Run `swapoff -a`, or add `--experimental-fail-swap-on=false` to the kubelet's flags in the unit. Every release from 1.7 to 1.9 accepts this flag.",
		},
	},
	{
		Code: "HF507", Level: Warn, Also: []Level{Stop}, Title: "stopping the kubelet's unit also kills other processes", By: []string{"node check"},
		About: []string{
			"With `KillMode=control-group`, systemd kills all processes in the unit's cgroup together with the kubelet. Kubelet 1.7 starts the daemons of FUSE volumes in this cgroup. If such a daemon is killed, pods can no longer use the volume that it serves.",
			"Drain the pods with FUSE volumes from the node, or add a drop-in to the unit with `KillMode=process` ([item 10](upgrade-1.7-to-1.9.md#before-you-start)).",
		},
	},
	{
		Code: "HF508", Level: Stop, Title: "the kubelet's kubeconfig does not exist or names no API server", By: []string{"node check"},
		About: []string{"The command line names a kubeconfig that does not exist or that names no API server, and no `--bootstrap-kubeconfig` from which the kubelet could create a kubeconfig. With `--require-kubeconfig` the kubelet exits. Without it, 1.9 logs `invalid kubeconfig` and runs standalone, without an API server."},
	},
	{
		Code: "HF509", Level: Unknown, Also: []Level{Stop}, Title: "a node command could not check something on the node", By: []string{"node check", "node swap", "node back"},
		About: []string{
			"The finding says what the command could not check. For example, without systemd the command cannot find out what `--start-command` starts, and with a runtime other than docker it does not compare the containers.",
			"If the kubelet's runtime is docker and docker does not answer, the finding is a `STOP`, because such a kubelet does not start without docker.",
		},
	},
	{
		Code: "HF510", Level: Warn, Title: "an earlier swap was interrupted", By: []string{"node check"},
		About: []string{"A `node swap` or `node back` was killed, or the machine went down, after the old kubelet was stopped and before the new kubelet was started. It is possible that no kubelet runs on the node. The next `node swap` or `node back` first starts the previous kubelet."},
	},
	{
		Code: "HF511", Level: Stop, Title: "the new kubelet did not become healthy, or the old kubelet did not stop", By: []string{"node swap", "node back"},
		About: []string{
			"The new kubelet exited, had a command line other than the unit's, would have run standalone, or did not answer `/healthz` in time; or the old kubelet did not stop. The program then puts the previous kubelet back and starts it. The finding says what happened, and which kubelet runs now.",
			"`journalctl -u kubelet` shows the kubelet's messages. The program records its own steps in `/usr/lib/holdfast/journal`.",
		},
	},
	{
		Code: "HF512", Level: Warn, Also: []Level{Stop}, Title: "the old kubelet would delete the files in subPath mounts that are left on the node", By: []string{"node check", "node back"},
		About: []string{
			"Kubelets 1.6 and older, 1.7.0 to 1.7.13, 1.8.0 to 1.8.8, and 1.9.0 to 1.9.3 delete the files in mounts below `volume-subpaths` when they remove a pod ([subpath-rollback](../../patches/subpath-rollback/README.md)). `node back` unmounts these mounts after it has stopped Holdfast and before it starts the old kubelet.",
			"If a mount is busy, the finding is a `STOP`, and `node back` starts Holdfast again. Stop the process that the finding names, and run `node back` again. Never unmount such a mount with `umount -l` or `umount -R`.",
		},
	},
	{
		Code: "HF514", Level: New, Title: "the swap recreated containers", By: []string{"node swap", "node back"},
		About: []string{
			"For each container in the finding, docker now runs another container: its pod and name are the same, but its ID is different. [The upgrade page](upgrade-1.7-to-1.9.md#one-node) says when you may continue.",
		},
	},
	{
		Code: "HF515", Level: Warn, Title: "Holdfast does not report the kubelet that ran before it, or reports the wrong one", By: []string{"node swap"},
		About: []string{
			"The metric `holdfast_predecessor_info` is missing, could not be read, or names a release other than the saved kubelet's. It is possible that Holdfast records hashes for new containers that the old kubelet does not accept.",
			"Check the release with `kubectl holdfast predecessor`. If the release is wrong, write the correct release into the [override](../../patches/predecessor/README.md#look-and-correct).",
		},
	},
	{
		Code: "HF516", Level: Stop, Title: "the kubelet's root directory is on a mount that is not shared", By: []string{"node check"},
		About: []string{
			"If the mount of the root directory is not shared, kubelets from 1.8 on bind-mount the directory over itself. The mounts that 1.7 made are then hidden, and cannot be unmounted until the node is rebooted.",
			"Run `mount --make-rshared /` before the swap, and after each boot.",
		},
	},
	{
		Code: "HF517", Level: Stop, Title: "a CNI configuration names its plugin with a path", By: []string{"node check"},
		About: []string{"Holdfast skips a CNI configuration in which a plugin's `type` contains a slash or a backslash ([cni-plugin-name](../../patches/cni-plugin-name/README.md)). If there is no other CNI configuration, the node becomes NotReady, and new pods wait. Copy the plugin's binary into `--cni-bin-dir`, and write its name without a path as the `type`."},
	},
	{
		Code: "HF518", Level: Warn, Title: "Holdfast would restart a static pod because of a line in its manifest", By: []string{"node check"},
		About: []string{
			"The manifest sets `metadata.creationTimestamp` to a time (`null` is harmless). The kubelet computes the UID of a static pod from a dump that contains this time, and today's Go prints times differently. So Holdfast gives the pod another UID, and the pod restarts once. Remove the line before the swap.",
			"Or a field name is in the wrong case, such as `hostnetwork`. Kubelets 1.8.0–1.8.14 and 1.9.0–1.9.8 accept such a name, but other kubelets ignore the field (kubernetes/kubernetes#65298). So Holdfast would restart the pod without this field. Correct the name.",
		},
	},
	{
		Code: "HF519", Level: Warn, Title: "Holdfast would send its requests to the API server through a proxy", By: []string{"node check"},
		About: []string{"The unit's environment sets a proxy, and its `NO_PROXY` excludes the API server only by a rule that today's Go no longer applies. Today, an entry `.corp.local` does not match `corp.local` itself, and an entry `host:6443` does not match the host's other ports. Name the API server's host in `NO_PROXY`."},
	},
	{
		Code: "HF520", Level: Stop, Title: "an IP address contains a number with a leading zero", By: []string{"node check"},
		About: []string{"Today's Go refuses an address such as `10.0.010.1`. With such an address in its flags or kubeconfig, Holdfast's kubelet exits at startup or does not reach the API server. Write the number without the zero."},
	},
	{
		Code: "HF527", Level: Warn, Title: "containers stopped during the swap, and no container replaced them", By: []string{"node swap", "node back"},
		About: []string{
			"This is normal if the container exited by itself, for example in the pod of a Job that finished, or if the pod was deleted during the swap. Otherwise check the pod: it is likely that the new kubelet set the pod to `Failed` at startup. The cause is disk pressure ([HF105](#hf105)), or the node's labels no longer match the pod's node selector or affinity ([HF206](#hf206)). The pod's controller creates another pod. If the pod has no controller, create the pod again yourself.",
		},
	},
	{
		Code: "HF530", Level: Stop, Title: "the deb or rpm package kubelet cannot replace or start this node's kubelet", By: []string{"node keep"},
		About: []string{
			"The package `kubelet` replaces only `/usr/bin/kubelet`, and its scripts start the unit only if the unit is enabled. On this node one of these is true: the unit starts another file; `/usr/bin/kubelet` is immutable (`lsattr`); the unit is disabled, static or masked.",
			"Correct this, or use `node swap`, which replaces the file that the unit starts. If `/etc/holdfast/skip-check` exists, the package is installed despite the STOP.",
		},
	},
	{
		Code: "HF531", Level: Stop, Title: "with the node's release of systemd, a kubelet with the cgroup driver systemd exits at startup", By: []string{"node check"},
		About: []string{
			"With `--cgroup-driver=systemd`, 1.7 to 1.9 kubelets and Holdfast request a delegated slice from systemd. systemd 237 and later refuse this request (kubernetes/kubernetes#61474), and the kubelet exits at startup. After a swap neither the new nor the old kubelet would run. `node check` does not print the finding if the running kubelet uses this driver and was started after this systemd was installed, because a kubelet with this driver evidently starts on this node.",
			"Drain the node, configure docker and the kubelet to use the driver `cgroupfs`, and restart both. Or go back to systemd 236.",
		},
	},
	{
		Code: "HF532", Level: Warn, Title: "the new kubelet would not accept the sandbox checkpoints of some pods", By: []string{"node check"},
		About: []string{
			"`/var/lib/dockershim/sandbox` contains a checkpoint for each pod's sandbox: a file with the pod's host ports and a checksum. Kubelets 1.6 and 1.7 compute the checksum differently from 1.8 and 1.9, and Holdfast accepts both checksums ([checkpoint-compat](../../patches/checkpoint-compat/README.md)). When stock 1.8 or 1.9 takes over, it removes the checkpoints that 1.7 wrote. With CNI or kubenet, the host ports of these pods are then not released when the pods are deleted. Kubelet 1.7 keeps a checkpoint that it does not accept, and then cannot stop that pod's sandbox.",
			"Delete the pods that the finding names before the swap, while the kubelet that wrote their checkpoints runs. No kubelet accepts a damaged checkpoint.",
		},
	},
	{
		Code: "HF533", Level: Warn, Title: "Holdfast would refuse the response to an HTTP probe, or would not send the probe", By: []string{"node check"},
		About: []string{
			"Today's Go parses HTTP responses more strictly than the Go of 2018, and does not send a request whose path contains a control byte: see [the list](install.md#what-todays-go-refuses). So the probe would fail after the swap: the pod would leave its Services, or its container would be killed.",
			"`node check --probe` lists the node's pods with the node's own kubeconfig, and sends each of their HTTP probes once, as the kubelet does. It does not send the requests of lifecycle hooks, because this would run the hooks; it only checks the paths of these requests.",
		},
	},
}
