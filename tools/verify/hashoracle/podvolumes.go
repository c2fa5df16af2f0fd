// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package hashoracle

// volume writes one, and notes its name for the containers.
func (g *podGenerator) volume() {
	name := g.unique("v")
	g.volumes = append(g.volumes, name)
	g.set("name", `"`+name+`"`)
	fsType := func() { g.one("fsType", `"ext4"`, `""`) }
	readOnly := func() { g.one("readOnly", "true", "false") }
	secret := func() { g.one("secretRef", `{"name":"s"}`, `{}`) }
	items := func() {
		g.one("items", `[{"key":"k","path":"p"},{"key":"l","path":"q","mode":256}]`, "[]")
	}
	mode := func() { g.one("defaultMode", "256", "0") }
	switch g.r.IntN(14) {
	case 0, 1, 2, 3:
		g.must("hostPath", func() {
			g.set("path", `"/etc/kubernetes"`)
			if g.r.IntN(10) == 0 {
				g.set("type", `""`) // what 1.8 and later make of no type
			} else {
				g.newer(8, "type", func() { g.raw(g.pick(`"DirectoryOrCreate"`, `"FileOrCreate"`, `"Directory"`, `"Socket"`)) })
			}
		})
	case 4, 5:
		g.must("emptyDir", func() {
			g.one("medium", `"Memory"`, `""`)
			if g.some() {
				// None that needs a big.Int: package staticpod gives no UID of 1.7 then.
				g.set("sizeLimit", g.pick(`"1Gi"`, `"0"`, `"1500Mi"`, `1000`))
			}
		})
	case 6:
		g.must("secret", func() { g.set("secretName", `"s"`); items(); mode(); g.one("optional", "true", "false") })
	case 7:
		g.must("configMap", func() { g.set("name", `"c"`); items(); mode(); g.one("optional", "true", "false") })
	case 8:
		g.must("downwardAPI", func() {
			mode()
			g.one("items", `[{"path":"a","fieldRef":{"fieldPath":"metadata.labels"}}]`,
				`[{"path":"a","mode":256,"resourceFieldRef":{"containerName":"c","resource":"limits.cpu","divisor":"1m"}}]`)
		})
	case 9:
		g.must("projected", func() {
			mode()
			g.one("sources", `[{"secret":{"name":"s"}},{"configMap":{"name":"c","items":[{"key":"k","path":"z"}]}}]`,
				`[{"downwardAPI":{"items":[{"path":"a","fieldRef":{"fieldPath":"metadata.name"}}]}}]`)
		})
	case 10:
		switch g.r.IntN(6) {
		case 0:
			g.must("gcePersistentDisk", func() { g.set("pdName", `"d"`); fsType(); g.one("partition", "1"); readOnly() })
		case 1:
			g.must("awsElasticBlockStore", func() { g.set("volumeID", `"d"`); fsType(); g.one("partition", "1"); readOnly() })
		case 2:
			g.must("azureDisk", func() {
				g.set("diskName", `"d"`)
				g.set("diskURI", `"https://x/y.vhd"`)
				g.one("cachingMode", `"None"`, `"ReadOnly"`)
				fsType()
				readOnly()
			})
		case 3:
			g.must("azureFile", func() { g.set("secretName", `"s"`); g.set("shareName", `"x"`); readOnly() })
		case 4:
			g.must("vsphereVolume", func() { g.set("volumePath", `"[ds] x"`); fsType(); g.one("storagePolicyName", `"p"`) })
		case 5:
			g.must("cinder", func() { g.set("volumeID", `"v"`); fsType(); readOnly() })
		}
	case 11:
		switch g.r.IntN(5) {
		case 0:
			g.must("nfs", func() { g.set("server", `"s"`); g.set("path", `"/p"`); readOnly() })
		case 1:
			g.must("glusterfs", func() { g.set("endpoints", `"e"`); g.set("path", `"p"`); readOnly() })
		case 2:
			g.must("cephfs", func() {
				g.set("monitors", `["a:6789"]`)
				g.one("path", `"/p"`)
				g.one("user", `"u"`)
				g.one("secretFile", `"/f"`)
				secret()
				readOnly()
			})
		case 3:
			g.must("rbd", func() {
				g.set("monitors", `["a:6789","b:6789"]`)
				g.set("image", `"i"`)
				fsType()
				g.one("pool", `"p"`)
				g.one("user", `"u"`)
				g.one("keyring", `"/k"`)
				secret()
				readOnly()
			})
		case 4:
			g.must("persistentVolumeClaim", func() { g.set("claimName", `"c"`); readOnly() })
		}
	case 12:
		switch g.r.IntN(4) {
		case 0:
			g.must("iscsi", func() {
				g.set("targetPortal", `"10.0.0.1:3260"`)
				g.set("iqn", `"iqn.2001-04.com.example:storage"`)
				g.set("lun", "0")
				fsType()
				g.one("iscsiInterface", `"default"`, `"x"`)
				g.one("portals", `["10.0.0.2"]`, "[]")
				if g.r.IntN(2) == 0 {
					g.set("chapAuthDiscovery", "true")
					g.set("secretRef", `{"name":"s"}`)
				}
				g.newer(8, "initiatorName", func() { g.raw(`"iqn.2001-04.com.example:me"`) })
				readOnly()
			})
		case 1:
			g.must("fc", func() {
				if g.newest >= 8 && g.r.IntN(2) == 0 {
					g.set("wwids", `["x"]`)
					g.oldest = max(g.oldest, 8)
				} else {
					g.set("targetWWNs", `["a","b"]`)
					g.set("lun", "1")
				}
				fsType()
				readOnly()
			})
		case 2:
			g.must("flexVolume", func() {
				g.set("driver", `"example.com/d"`)
				fsType()
				secret()
				g.one("options", `{"a":"b"}`, "{}")
				readOnly()
			})
		case 3:
			g.must("flocker", func() { g.set("datasetName", `"d"`) })
		}
	case 13:
		switch g.r.IntN(4) {
		case 0:
			g.must("quobyte", func() {
				g.set("registry", `"a:1"`)
				g.set("volume", `"v"`)
				g.one("user", `"u"`)
				g.one("group", `"g"`)
				readOnly()
			})
		case 1:
			g.must("portworxVolume", func() { g.set("volumeID", `"v"`); fsType(); readOnly() })
		case 2:
			g.must("storageos", func() { g.set("volumeName", `"v"`); g.one("volumeNamespace", `"n"`); secret(); readOnly() })
		case 3:
			g.must("photonPersistentDisk", func() { g.set("pdID", `"p"`); fsType() })
		}
	}
}
