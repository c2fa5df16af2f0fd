// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/webhook/internal/exit"
	"holdfast/webhook/internal/manifests"
	"holdfast/webhook/internal/rules"
	"holdfast/webhook/rulesets"
)

func manifestsCommand() *cobra.Command {
	o := manifests.Options{}
	var r ruleFlags
	var output, clientCA string
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Write the objects that install the program, including certificates",
		Long: `Write the objects that install the program: namespace, RBAC, rules, certificates,
DaemonSet or Deployment, webhook configuration. Plain YAML for kubectl apply of
1.9, with a kustomization.yaml. The authority's key is kept nowhere: to renew the
certificate, write the objects anew and apply certificate and webhook together.`,
		Example: `  endpoints-rules manifests --image IMAGE --rule-set image-pending --output DIR
  kubectl apply -f DIR/10-namespace.yaml   # and the others, in their order`,
		Args: exitArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			switch {
			case (r.file == "") == (r.set == ""):
				return exit.Usagef("one of --rules and --rule-set is needed")
			case r.file != "":
				if o.Rules, err = os.ReadFile(r.file); err != nil {
					return err
				}
			default:
				var ok bool
				if o.Rules, ok = rulesets.Text(r.set); !ok {
					return exit.Usagef("unknown rule set %q: use one of %q", r.set, rulesets.Names())
				}
			}
			if _, err := rules.Parse(r.file+r.set, o.Rules); err != nil {
				return err
			}
			if clientCA != "" {
				if o.ClientCA, err = os.ReadFile(clientCA); err != nil {
					return fmt.Errorf("--client-ca-file: %w", err)
				}
				if len(o.ClientCA) == 0 {
					return exit.Usagef("--client-ca-file %s: it is empty", clientCA)
				}
			}
			if o.Image == "" {
				o.Image = releaseImage(cmd.Root().Version)
			}
			files, err := manifests.Make(o, time.Now())
			if err != nil {
				return err
			}
			if output != "" {
				return manifests.Write(output, files)
			}
			var b bytes.Buffer
			for _, n := range slices.Sorted(maps.Keys(files)) {
				if n != "kustomization.yaml" {
					fmt.Fprintf(&b, "---\n# %s\n%s", n, files[n])
				}
			}
			_, err = cmd.OutOrStdout().Write(b.Bytes())
			return err
		},
	}
	r.add(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Form, "form", manifests.DaemonSet, manifests.DaemonSet+" (on the masters, called at 127.0.0.1) or "+manifests.Deployment+" (two replicas behind a Service)")
	f.StringVar(&o.Namespace, "namespace", "endpoints-rules", "namespace of the program")
	f.StringVar(&o.Image, "image", "", "image whose entry point is the program (default: the image of this program's release, under the name that docker load gives it)")
	f.IntVar(&o.Port, "port", 9943, "port to serve on")
	f.IntVar(&o.Days, "days", 365, "days that the certificate is valid")
	f.StringVar(&clientCA, "client-ca-file", "", "file with the certificate authorities of the API server's client certificate; reviews without this certificate are refused (default: anyone who reaches the port may send reviews)")
	f.StringVar(&o.ClientNames, "client-allowed-names", "", "common names that this client certificate may have, comma separated (default: any)")
	f.StringSliceVar(&o.AllowFrom, "allow-from", nil, "with --form "+manifests.Deployment+", networks that a NetworkPolicy admits: those of the masters, and also of the nodes if the network plugin filters the kubelet's probes")
	f.StringVar(&output, "output", "", "folder to write into (default: standard output)")
	return cmd
}

// releaseImage is the image that the release of this version has, "" for a program that knows no
// version of its own. No registry has that name: a node has the image by docker load, or by a tag.
func releaseImage(version string) string {
	if !strings.HasPrefix(version, "v") {
		return ""
	}
	return "holdfast.invalid/endpoints-rules:" + strings.ReplaceAll(version, "+", "_")
}
