// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package protobuf

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/glog"
)

var malformedMessages uint64

// MalformedMessages is how many messages made a decoder panic since the program began. This
// package must not know of metrics: pkg/version/prometheus has the counter.
func MalformedMessages() uint64 { return atomic.LoadUint64(&malformedMessages) }

// guardedUnmarshal is into.Unmarshal(data) that returns an error where the generated
// code panics: a malformed message leads it outside of data (CVE-2021-3121).
func guardedUnmarshal(into interface {
	Unmarshal([]byte) error
}, data []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = malformed(data, r)
		}
	}()
	return into.Unmarshal(data)
}

// guardedProtoUnmarshal is proto.Unmarshal alike.
func guardedProtoUnmarshal(data []byte, into proto.Message) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = malformed(data, r)
		}
	}()
	return proto.Unmarshal(data, into)
}

func malformed(data []byte, panicked interface{}) error {
	atomic.AddUint64(&malformedMessages, 1)
	glog.V(2).Infof("The decoder of a protobuf message of %d bytes panicked: %v\n%s", len(data), panicked, debug.Stack())
	return fmt.Errorf("malformed protobuf message of %d bytes: %v", len(data), panicked)
}
