// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// guestbook serves /guestbook.php on port 80, as the web page of the guestbook
// example does: cmd=set writes key into the Redis named redis-master, cmd=get reads
// it from the one named redis-slave.
func guestbook() error {
	mux := http.NewServeMux()
	mux.HandleFunc("/guestbook.php", func(w http.ResponseWriter, q *http.Request) {
		f := q.URL.Query()
		var answer string
		var err error
		switch f.Get("cmd") {
		case "set":
			_, err = redis("redis-master:6379", "SET", f.Get("key"), f.Get("value"))
			answer = `{"message": "Updated"}`
		case "get":
			var v string
			v, err = redis("redis-slave:6379", "GET", f.Get("key"))
			b, _ := json.Marshal(v)
			answer = `{"data": ` + string(b) + `}`
		default:
			err = fmt.Errorf("cmd %q: want set or get", f.Get("cmd"))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, answer)
	})
	return (&http.Server{Addr: ":80", Handler: mux, ReadHeaderTimeout: 10 * time.Second}).ListenAndServe()
}

// redis sends one command and returns what is answered, "" for no value.
func redis(addr string, args ...string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	fmt.Fprintf(c, "*%d\r\n", len(args))
	for _, a := range args {
		if _, err := fmt.Fprintf(c, "$%d\r\n%s\r\n", len(a), a); err != nil {
			return "", err
		}
	}
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(line, "+"):
		return line[1:], nil
	case strings.HasPrefix(line, "$"):
		n, err := strconv.Atoi(line[1:])
		if err != nil || n < 0 {
			return "", err // -1: no value
		}
		b := make([]byte, n)
		_, err = io.ReadFull(r, b)
		return string(b), err
	}
	return "", fmt.Errorf("redis at %s answers %q", addr, line)
}
