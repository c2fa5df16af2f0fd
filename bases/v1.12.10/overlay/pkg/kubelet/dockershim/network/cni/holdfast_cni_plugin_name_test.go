// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"io/ioutil"
	"os"
	"path/filepath"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

func TestPluginNames(t *testing.T) {
	dir, err := ioutil.TempDir("", "cni")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	write := func(name, text string) {
		if err := ioutil.WriteFile(filepath.Join(dir, name), []byte(text), 0644); err != nil {
			t.Fatal(err)
		}
	}
	count := func() float64 {
		var m dto.Metric
		if err := configsRefused.Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	write("10-path.conf", `{"cniVersion": "0.3.0", "name": "path", "type": "../../tmp/x"}`)
	write("20-absolute.conf", `{"cniVersion": "0.3.0", "name": "absolute", "type": "/tmp/x"}`)
	write("30-second.conflist", `{"cniVersion": "0.3.0", "name": "second", "plugins": [{"type": "bridge"}, {"type": "sub/portmap"}]}`)
	write("35-backslash.conf", `{"cniVersion": "0.3.0", "name": "backslash", "type": "..\\x"}`)
	before := count()
	for i := 0; i < 3; i++ {
		if network, err := getDefaultCNINetwork(dir, []string{"/opt/cni/bin"}); err == nil {
			t.Errorf("%s is taken", network.name)
		}
	}
	if n := count() - before; n != 4 {
		t.Errorf("counted %v, want each file once", n)
	}
	write("40-good.conflist", `{"cniVersion": "0.3.0", "name": "good", "plugins": [{"type": "bridge"}, {"type": "vendor.example..port-map_2"}]}`)
	if network, err := getDefaultCNINetwork(dir, []string{"/opt/cni/bin"}); err != nil || network.name != "good" {
		t.Errorf("%+v, %v", network, err)
	}
}
