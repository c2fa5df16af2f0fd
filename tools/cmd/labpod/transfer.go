// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// bytesOf answers /bytes.
func bytesOf(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.FormValue("n"), 10, 64)
	if err != nil || n < 0 {
		http.Error(w, "n is a number of bytes", http.StatusBadRequest)
		return
	}
	if r.FormValue("chunked") == "" {
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	}
	if code, err := strconv.Atoi(r.FormValue("code")); err == nil {
		w.WriteHeader(code)
	}
	for block := []byte(strings.Repeat("x", 32<<10)); n > 0; n -= int64(len(block)) {
		if _, err := w.Write(block[:min(n, int64(len(block)))]); err != nil {
			return
		}
	}
}

// isTar: the words are those with which kubectl cp calls tar.
func isTar(args []string) bool {
	return len(args) > 1 && strings.HasSuffix(args[0], "f") && args[1] == "-" && strings.ContainsAny(args[0], "cx")
}

// tarCommand is as much of tar as kubectl cp needs for a file.
func tarCommand(args []string) error {
	if strings.Contains(args[0], "c") {
		if len(args) != 3 {
			return fmt.Errorf("tar %s: want one file", args)
		}
		return pack(args[2])
	}
	dir := "/"
	if i := slices.Index(args, "-C"); i >= 0 && i+1 < len(args) {
		dir = args[i+1]
	}
	for tr := tar.NewReader(os.Stdin); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		f, err := os.Create(filepath.Join(dir, filepath.Clean("/"+h.Name)))
		if err != nil {
			return err
		}
		_, err = io.Copy(f, tr)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}

func pack(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	tw := tar.NewWriter(os.Stdout)
	if err := tw.WriteHeader(&tar.Header{Name: strings.TrimPrefix(file, "/"), Typeflag: tar.TypeReg, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	if _, err := io.Copy(tw, f); err != nil {
		return err
	}
	return tw.Close()
}
