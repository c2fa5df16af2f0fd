// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package credentialprovider

import (
	"bytes"
	"flag"
	"io/ioutil"
	"os"
	"testing"

	"github.com/golang/glog"
	dto "github.com/prometheus/client_model/go"
)

// TestBadConfigIsNotLogged: a docker config file that cannot be read is named by its size
// (CVE-2020-8564).
func TestBadConfigIsNotLogged(t *testing.T) {
	if err := flag.Set("logtostderr", "true"); err != nil {
		t.Fatal(err)
	}
	const secret = "dXNlcjpwYXNzd29yZA=="
	count := func() float64 {
		var m dto.Metric
		if err := configsWithheld.Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	before := count()
	stderr := os.Stderr
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = write
	_, errFile := readDockerConfigFileFromBytes([]byte(`{"registry.test": {"auth": "` + secret + `",}}`))
	_, errJSON := readDockerConfigJsonFileFromBytes([]byte(`{"auths": {"registry.test": {"auth": "` + secret + `",}}}`))
	if _, err := readDockerConfigFileFromBytes([]byte(`{}`)); err != nil {
		t.Error(err)
	}
	glog.Flush()
	os.Stderr = stderr
	write.Close()
	b, err := ioutil.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	if errFile == nil || errJSON == nil {
		t.Fatalf("no error: %v, %v", errFile, errJSON)
	}
	if n := count() - before; n != 2 {
		t.Errorf("counted %v, want 2", n)
	}
	all := append(b, []byte(errFile.Error()+errJSON.Error())...)
	if bytes.Contains(all, []byte(secret)) {
		t.Errorf("the password is in the log or the error: %s", all)
	}
	if bytes.Count(b, []byte("while trying to parse")) != 2 || !bytes.Contains(b, []byte("52 bytes")) || !bytes.Contains(b, []byte("invalid character")) {
		t.Errorf("the log does not say what is wrong: %s", b)
	}
}
