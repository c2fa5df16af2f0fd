// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

// Cnicount is a CNI plugin for labs, the last of a list: it gives on the result of the plugins
// before it, writes down each call, and fails or waits where a file in its folder says so. A list
// that fails in its last plugin has allocated all that the others do.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// conf is what the plugin reads from the network's configuration.
type conf struct {
	CNIVersion string          `json:"cniVersion"`
	PrevResult json.RawMessage `json:"prevResult"`
	// Dir has calls.jsonl, and the files COMMAND-fail-POD, which fails one call, and
	// COMMAND-hold-POD, which holds calls as long as it is there.
	Dir string `json:"dir"`
}

// Call is a line of calls.jsonl.
type Call struct {
	Command, Sandbox, Pod string
	Failed                bool `json:",omitempty"`
}

// patience is for a file that holds a call.
const patience = 5 * time.Minute

func main() {
	if err := run(os.Stdin, os.Stdout, os.Getenv); err != nil {
		// The form of an error of CNI's specification 0.3.1.
		b, _ := json.Marshal(map[string]any{"cniVersion": "0.3.1", "code": 100, "msg": err.Error()})
		fmt.Println(string(b))
		os.Exit(1)
	}
}

var podArg = regexp.MustCompile(`(?:^|;)K8S_POD_NAME=([a-z0-9.-]+)(?:;|$)`)

func run(in io.Reader, out io.Writer, env func(string) string) error {
	command := env("CNI_COMMAND")
	if command == "VERSION" {
		_, err := fmt.Fprintln(out, `{"cniVersion":"0.3.1","supportedVersions":["0.3.0","0.3.1"]}`)
		return err
	}
	var c conf
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return fmt.Errorf("cnicount: configuration: %w", err)
	}
	m := podArg.FindStringSubmatch(env("CNI_ARGS"))
	if c.Dir == "" || m == nil {
		return fmt.Errorf("cnicount: no dir in the configuration, or no pod in CNI_ARGS %q", env("CNI_ARGS"))
	}
	call := Call{Command: command, Sandbox: env("CNI_CONTAINERID"), Pod: m[1]}
	file := func(what string) string {
		return filepath.Join(c.Dir, strings.Join([]string{command, what, call.Pod}, "-"))
	}
	call.Failed = os.Remove(file("fail")) == nil
	if err := call.write(c.Dir); err != nil {
		return err
	}
	if call.Failed {
		return fmt.Errorf("cnicount: %s fails, as the lab says", command)
	}
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(file("hold")); err != nil {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("cnicount: %s was held for %v", command, patience)
		}
	}
	if command != "ADD" {
		return nil
	}
	_, err := out.Write(c.PrevResult)
	return err
}

// write appends the call. Calls run side by side, and a short write to the end of a file is whole.
func (c Call) write(dir string) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "calls.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
