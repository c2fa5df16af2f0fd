// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsi

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/util/mount"
)

// iscsiadm refuses the password, and quotes it.
func TestCHAPSecrets(t *testing.T) {
	secret := map[string]string{}
	for _, keys := range [][]string{chap_sess, chap_st} {
		for _, k := range keys {
			secret[k] = "sEcret"
		}
	}
	for _, refused := range []string{"node.session.auth.username", "node.session.auth.password", "node.session.auth.password_in",
		"discovery.sendtargets.auth.password", "discovery.sendtargets.auth.password_in"} {
		secret[refused] = "sEcret-of-" + refused
		b := iscsiDiskMounter{iscsiDisk: &iscsiDisk{Iqn: "iqn.2018-01.x:y", Iface: "default", chap_session: true, chap_discovery: true, secret: secret},
			exec: mount.NewFakeExec(func(cmd string, args ...string) ([]byte, error) {
				if n := len(args); args[n-3] == refused {
					return []byte("iscsiadm: Could not write " + args[n-1] + "\n"), errors.New("exit status 6")
				}
				return nil, nil
			})}
		update := updateISCSINode
		if strings.HasPrefix(refused, "discovery") {
			update = updateISCSIDiscoverydb
		}
		err := update(b, "10.0.0.1:3260")
		if err == nil || !strings.Contains(err.Error(), refused) || !strings.Contains(err.Error(), "Could not write <masked>") {
			t.Errorf("%s: %v", refused, err)
		} else if strings.Contains(strings.Replace(err.Error(), `"`+refused+`"`, "", -1), "sEcret") {
			t.Errorf("%s: the secret is in the error: %v", refused, err)
		}
		secret[refused] = "sEcret"
	}
}
