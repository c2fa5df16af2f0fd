// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"errors"
	"flag"
	"fmt"
	"io/ioutil"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
)

func TestMaskOptions(t *testing.T) {
	for _, tc := range []struct {
		options, shown string
		secrets        []string
	}{
		{"", "", nil},
		{"bind", "bind", nil},
		{"ro,remount,noatime", "ro,remount,noatime", nil},
		{"size=50%,mode=0700", "size=50%,mode=0700", nil},
		{"username=account,password=a2V5Cg==,vers=3.0", "username=account,password=<masked>,vers=3.0", []string{"a2V5Cg=="}},
		{"username=DOM/user%k%y==,ro", "username=DOM/user%<masked>,ro", []string{"k%y=="}},
		{"user=account%two,parts,ro", "user=account%<masked>,<masked>,ro", []string{"two", "parts"}},
		{"user=account%,username=", "user=account%,username=", nil},
		{"name=admin,secret=AQAtTElYAAAAABAAx==,ro", "name=admin,secret=<masked>,ro", []string{"AQAtTElYAAAAABAAx=="}},
		{"name=admin,secretfile=/etc/ceph/user.secret", "name=admin,secretfile=/etc/ceph/user.secret", nil},
		{"password=one,two=three,four,ro", "password=<masked>,two=<masked>,<masked>,ro", []string{"one", "three", "four"}},
		{"pass=,ro", "pass=,ro", nil},
		{"=x", "=<masked>", []string{"x"}},
		{",,", ",,", nil},
		{"PASSWORD=x,Size=1", "PASSWORD=<masked>,Size=<masked>", []string{"x", "1"}},
	} {
		shown, secrets := maskOptions(tc.options)
		if shown != tc.shown || !reflect.DeepEqual(secrets, tc.secrets) {
			t.Errorf("%q: %q and %q, want %q and %q", tc.options, shown, secrets, tc.shown, tc.secrets)
		}
	}
}

// seeds is how many inputs a fuzz test makes up: a million with HOLDFAST_EXHAUSTIVE=1.
func seeds() int {
	if os.Getenv("HOLDFAST_EXHAUSTIVE") != "" {
		return 1000000
	}
	return 10000
}

// TestMaskOptionsFuzz: no value of an option that is not known is shown.
func TestMaskOptionsFuzz(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	keys := []string{"password", "secret", "vers", "size", "ro", "", "x-y", "name"}
	for i, all := 0, seeds(); i < all; i++ {
		var parts, want []string
		for n := r.Intn(6); n > 0; n-- {
			key := keys[r.Intn(len(keys))]
			switch r.Intn(3) {
			case 0:
				parts = append(parts, "ro")
			case 1:
				parts = append(parts, key+"="+fmt.Sprintf("value%d==", r.Intn(1000)))
				if !plainOptions[key] {
					want = append(want, parts[len(parts)-1][len(key)+1:])
				}
			default:
				parts = append(parts, fmt.Sprintf("word%d", r.Intn(1000)))
				want = append(want, parts[len(parts)-1])
			}
		}
		options := strings.Join(parts, ",")
		shown, secrets := maskOptions(options)
		if len(secrets) != len(want) || len(want) > 0 && !reflect.DeepEqual(secrets, want) {
			t.Fatalf("%q: secrets %q, want %q", options, secrets, want)
		}
		if strings.Count(shown, ",") != strings.Count(options, ",") {
			t.Fatalf("%q became %q", options, shown)
		}
		for i, p := range strings.Split(shown, ",") {
			if p != strings.Split(options, ",")[i] && !strings.HasSuffix(p, masked) {
				t.Fatalf("%q became %q", options, shown)
			}
		}
	}
	t.Logf("%d inputs", seeds())
}

func counted(t *testing.T, c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// failingExec is mount(8) that prints its arguments and fails.
type failingExec struct {
	args   []string
	output string
}

func (e *failingExec) Run(cmd string, args ...string) ([]byte, error) {
	e.args = args
	command := "mount " + strings.Join(args, " ")
	return []byte(e.output + "cannot mount with " + command), fmt.Errorf("command '%s' failed: exit status 32", command)
}

const key, short = "c2VjcmV0LWtleQ==", "pw"

func TestMountErrors(t *testing.T) {
	dir, err := ioutil.TempDir("", "mount-errors")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	// A mount(8) that prints what it is called with.
	mountPath := filepath.Join(dir, "mount")
	seen := filepath.Join(dir, "seen")
	if err := ioutil.WriteFile(mountPath, []byte("#!/bin/sh\necho \"$@\" > "+seen+"\necho \"cannot mount with $@\"\nexit 32\n"), 0755); err != nil {
		t.Fatal(err)
	}
	options := []string{"ro", "username=account,password=" + key, "pin=" + short, "vers=3.0"}
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.MountErrorsWithoutSecrets, on)()
			fake := &failingExec{}
			for name, mount := range map[string]func() error{
				"Mounter": func() error { return (&Mounter{}).doMount("", mountPath, "//server/share", "/target", "cifs", options) },
				"execMounter": func() error {
					return NewExecMounter(fake, &FakeMounter{}).Mount("//server/share", "/target", "cifs", options)
				},
			} {
				masks, would := counted(t, mountErrorsMasked), counted(t, mountErrorsWouldMask)
				err := mount()
				masks, would = counted(t, mountErrorsMasked)-masks, counted(t, mountErrorsWouldMask)-would
				if err == nil {
					t.Fatalf("%s: no error", name)
				}
				if leaks := strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "pin="+short); leaks == on {
					t.Errorf("%s, gate %v: %v", name, on, err)
				}
				for _, word := range []string{"exit status 32", "//server/share", "/target", "cifs", "username=account", "vers=3.0", "cannot mount with"} {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("%s, gate %v: the error does not have %q: %v", name, on, word, err)
					}
				}
				if on && (!strings.Contains(err.Error(), "password=<masked>") || !strings.Contains(err.Error(), "pin=<masked>")) {
					t.Errorf("%s: %v", name, err)
				}
				if (masks == 1) != on || (would == 1) == on {
					t.Errorf("%s, gate %v: counted %v masked, %v would be", name, on, masks, would)
				}
			}
			// The command gets what it got.
			got, err := ioutil.ReadFile(seen)
			if err != nil || !strings.Contains(string(got), "password="+key) {
				t.Errorf("gate %v: mount was called with %q (%v)", on, got, err)
			}
			if !strings.Contains(strings.Join(fake.args, " "), "password="+key) {
				t.Errorf("gate %v: mount was called with %q", on, fake.args)
			}
		}()
	}
}

// TestMaskTextLongestFirst: of two secrets one of which begins the other, the longer one goes
// whole.
func TestMaskTextLongestFirst(t *testing.T) {
	for _, secrets := range [][]string{{"pass", "password1"}, {"password1", "pass"}} {
		if got := maskText("tried password1 and pass", secrets); got != "tried <masked> and <masked>" {
			t.Errorf("%q: %q", secrets, got)
		}
	}
}

// TestMountErrorForParser: a caller that looks into the error finds the words of mount(8) also
// where an option has the same ones, and nobody else is shown them.
func TestMountErrorForParser(t *testing.T) {
	const refused = "mount.fuse: Invalid argument for "
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.MountErrorsWithoutSecrets, on)()
			options := []string{"password=argument", "secret=" + key}
			err := NewExecMounter(&failingExec{output: refused}, &FakeMounter{}).Mount("server:vol", "/target", "glusterfs", options)
			if err == nil {
				t.Fatal("no error")
			}
			if text := UnmaskedText(err); !strings.Contains(text, refused) || !strings.Contains(text, key) {
				t.Errorf("gate %v: a parser gets %q", on, text)
			}
			shown := fmt.Sprintf("%v %+v %#v %#v %s %q", err, err, err, struct{ Err error }{err}, err, err)
			if leaks := strings.Contains(shown, refused) || strings.Contains(shown, key); leaks == on {
				t.Errorf("gate %v: %s", on, shown)
			}
		}()
	}
	if text := UnmaskedText(errors.New("exit status 32")); text != "exit status 32" {
		t.Errorf("a parser gets %q", text)
	}
}

// TestReadersOfMountErrors: no other code of the volume plugins looks for words in an error's
// text. Whoever does that with an error of Mount has to take UnmaskedText.
func TestReadersOfMountErrors(t *testing.T) {
	reads := regexp.MustCompile(`(Contains|HasPrefix|HasSuffix|Index|MatchString)\(\w*[eE]rrs?\.Error\(\)`)
	// One reads the error of a look at a device, the other that of a provisioner.
	known := map[string]bool{"operation_generator.go": true, "provisionerror.go": true}
	files := 0
	err := filepath.Walk("../../volume", func(path string, info os.FileInfo, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		source, err := ioutil.ReadFile(path)
		if found := reads.FindString(string(source)); found != "" && !known[filepath.Base(path)] {
			t.Errorf("%s: %s", path, found)
		}
		return err
	})
	if err != nil || files < 100 {
		t.Fatalf("%d files of plugins: %v", files, err)
	}
}

// TestMountLog: what is logged at higher levels.
func TestMountLog(t *testing.T) {
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.MountErrorsWithoutSecrets, on)()
			args := []string{"-t", "cifs", "-o", "ro,password=" + key, "//server/share", "/target"}
			got := []string{fmt.Sprint(argsForLog(args)), fmt.Sprint(optionsForLog(args[3:4])), fmt.Sprint(outputForLog(args, []byte("bad "+key+" here")))}
			want := []string{"[-t cifs -o ro,password=KEY //server/share /target]", "[ro,password=KEY]", "bad KEY here"}
			for i := range want {
				shown := map[bool]string{true: masked, false: key}[on]
				if w := strings.Replace(want[i], "KEY", shown, 1); got[i] != w {
					t.Errorf("gate %v: %q, want %q", on, got[i], w)
				}
			}
			if args[3] != "ro,password="+key {
				t.Errorf("gate %v: the arguments were changed: %q", on, args)
			}
		}()
	}
}

// TestMountErrorWithoutOptions: an error without values is as stock's to the byte.
func TestMountErrorWithoutOptions(t *testing.T) {
	var texts []string
	for _, on := range []bool{true, false} {
		func() {
			defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.MountErrorsWithoutSecrets, on)()
			err := (&Mounter{}).doMount("", "false", "/dev/sdx", "/target", "ext4", []string{"ro", "noatime", "size=1"})
			texts = append(texts, err.Error())
		}()
	}
	if texts[0] != texts[1] {
		t.Errorf("%q and %q", texts[0], texts[1])
	}
}

// TestMountVerboseLog: what is logged of each command at -v=5.
func TestMountVerboseLog(t *testing.T) {
	flag.Set("logtostderr", "true")
	flag.Set("v", "5")
	defer flag.Set("v", "0")
	old := os.Stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = w
	options := []string{"password=" + key, "vers=3.0"}
	(&Mounter{}).doMount("", "true", "//server/share", "/target", "cifs", options)
	NewExecMounter(&failingExec{}, &FakeMounter{}).Mount("//server/share", "/target", "cifs", options)
	os.Stderr = old
	w.Close()
	logged, err := ioutil.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Mounting cmd (true)", "Exec Mounting", "Exec mounted"} {
		if !strings.Contains(string(logged), line) {
			t.Errorf("%q is not logged: %s", line, logged)
		}
	}
	if strings.Contains(string(logged), key) {
		t.Errorf("the password is in the log: %s", logged)
	}
}
