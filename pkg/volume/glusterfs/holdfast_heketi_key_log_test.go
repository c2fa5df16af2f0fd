// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package glusterfs

import (
	"flag"
	"fmt"
	"io/ioutil"
	"os"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes/fake"
	utiltesting "k8s.io/client-go/util/testing"
	"k8s.io/kubernetes/pkg/volume"
	volumetest "k8s.io/kubernetes/pkg/volume/testing"
)

func TestHeketiKeyLog(t *testing.T) {
	flag.Set("logtostderr", "true")
	flag.Set("v", "5")
	defer flag.Set("v", "0")
	tmp, err := utiltesting.MkTmpdir("glusterfs")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	plugin := &glusterfsPlugin{host: volumetest.NewFakeVolumeHost(tmp, fake.NewSimpleClientset(), nil), gidTable: map[string]*MinMaxAllocator{}}
	claim := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}}}}
	parameters := map[string]string{"resturl": "http://127.0.0.1:1", "restuser": "admin", "RestUserKey": "sEcret", "restauthenabled": "true"}
	old := os.Stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = w
	p := &glusterfsVolumeProvisioner{glusterfsMounter: &glusterfsMounter{glusterfs: &glusterfs{plugin: plugin}}, options: volume.VolumeOptions{PVC: claim, Parameters: parameters}}
	_, provisioned := provision(p)
	os.Stderr = old
	w.Close()
	logged, err := ioutil.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range loggedLines {
		if !strings.Contains(string(logged), line) {
			t.Errorf("%q is not logged (%v): %s", line, provisioned, logged)
		}
	}
	if strings.Contains(string(logged), "sEcret") {
		t.Errorf("Heketi's key is in the log: %s", logged)
	}
	if parameters["RestUserKey"] != "sEcret" || p.secretValue != "sEcret" {
		t.Error("the key is lost")
	}
	c := provisionerConfig{url: "http://h", user: "admin", secretValue: "sEcret", clusterID: "c"}
	for _, text := range []string{fmt.Sprintf("%v", c), fmt.Sprintf("%+v", &c)} {
		if strings.Contains(text, "sEcret") || !strings.Contains(text, "url:http://h") || !strings.Contains(text, "clusterID:c") {
			t.Error(text)
		}
	}
}
