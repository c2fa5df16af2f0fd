// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	pageSize = 500
	maxPages = 1000
)

// errNoList is the error for an answer that is no list of the API, or ends in the middle. It has no
// word of the answer: nobody knows what is in it.
var errNoList = errors.New("the answer is not the list that was expected, or only half of it")

// List reads the list at path ("/api/v1/pods") and gives each object of it to each, one by one, so
// that a list that is not paged (1.8 and before have no pages) is never in memory as a whole. All
// pages together may have at most limit bytes and take at most timeout. at is the server's time of
// the first answer, zero if it told none; version is the list's resourceVersion.
//
// After an error, what each was given is only a part: throw it away.
func (c *Client) List(ctx context.Context, path string, limit int64, timeout time.Duration, each func(json.RawMessage) error) (at time.Time, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	left := limit
	err = pages(path, func(path string) (next string, err error) {
		body, date, err := c.Stream(ctx, path)
		if err != nil {
			return "", err
		}
		counted := &io.LimitedReader{R: body, N: left}
		next, version, err = page(json.NewDecoder(counted), each)
		_ = body.Close()
		left = counted.N
		switch {
		case left <= 0:
			return "", fmt.Errorf("the list has more than %d bytes", limit)
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err != nil:
			return "", err
		}
		if at.IsZero() {
			at = date
		}
		return next, nil
	})
	return at, version, err
}

// pages reads the pages of the list at path, each by its own path. read returns what the next one is
// asked by, "" after the last.
func pages(path string, read func(path string) (next string, err error)) error {
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	q := url.Values{"limit": {fmt.Sprint(pageSize)}}
	for range maxPages {
		next, err := read(path + sep + q.Encode())
		if err != nil || next == "" {
			return err
		}
		q.Set("continue", next)
	}
	return errors.New("the list has no end")
}

// Stream sends a GET and returns the body of an answer that is 200, and the server's time if it told
// it. The caller bounds what is read and closes the body.
func (c *Client) Stream(ctx context.Context, path string) (body io.ReadCloser, at time.Time, err error) {
	res, err := c.do(ctx, http.MethodGet, path, "", "application/json")
	if err != nil {
		return nil, at, err
	}
	if t, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		at = t
	}
	return res.Body, at, nil
}

// page reads one page of a list, and returns what the next one is asked by.
func page(d *json.Decoder, each func(json.RawMessage) error) (next, version string, err error) {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", "", errNoList
	}
	kind := ""
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", "", errNoList
		}
		switch key {
		case "items":
			err = items(d, each)
		case "kind":
			err = d.Decode(&kind)
		case "metadata":
			var m struct{ Continue, ResourceVersion string }
			err = d.Decode(&m)
			next, version = m.Continue, m.ResourceVersion
		default:
			err = d.Decode(&json.RawMessage{})
		}
		if err != nil {
			return "", "", errNoList
		}
	}
	if _, err := d.Token(); err != nil || !strings.HasSuffix(kind, "List") {
		return "", "", errNoList
	}
	return next, version, nil
}

// items reads the array of a list; null stands for an empty one.
func items(d *json.Decoder, each func(json.RawMessage) error) error {
	t, err := d.Token()
	if err != nil || t == nil {
		return err
	}
	if t != json.Delim('[') {
		return errNoList
	}
	var item json.RawMessage
	for d.More() {
		if err := d.Decode(&item); err != nil {
			return err
		}
		if err := each(item); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}
