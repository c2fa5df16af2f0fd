// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package protobuf

import (
	"encoding/binary"
	"math"
	"math/rand"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// overflowing is a message with an empty string as field 3 and an unknown field 15 whose
// length is such that the place behind it is beyond what an int holds.
func overflowing() []byte {
	length := make([]byte, binary.MaxVarintLen64)
	n := binary.PutUvarint(length, math.MaxInt64-10)
	return append([]byte{3<<3 | 2, 0, 15<<3 | 2}, length[:n]...)
}

// wrapped is the serializer's envelope around a message.
func wrapped(t *testing.T, raw []byte) []byte {
	unk := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Status"}, Raw: raw}
	b, err := unk.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(append([]byte{}, protoEncodingPrefix...), b...)
}

func serializers() (*Serializer, *RawSerializer, *schema.GroupVersionKind) {
	scheme := runtime.NewScheme()
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Status"}
	scheme.AddKnownTypeWithName(kind, &v1.Status{})
	return NewSerializer(scheme, scheme, "application/vnd.kubernetes.protobuf"), NewRawSerializer(scheme, scheme, "application/vnd.kubernetes.protobuf"), &kind
}

// TestMalformedMessageIsAnError: in the envelope, in a message of a registered type and in
// one of a type that is not, by both serializers.
func TestMalformedMessageIsAnError(t *testing.T) {
	s, raw, kind := serializers()
	empty := runtime.NewScheme()
	unregistered := NewSerializer(empty, empty, "")
	for name, decode := range map[string]func() error{
		"envelope": func() error {
			_, _, err := s.Decode(append(append([]byte{}, protoEncodingPrefix...), overflowing()...), kind, nil)
			return err
		},
		"message": func() error {
			_, _, err := s.Decode(wrapped(t, overflowing()), kind, nil)
			return err
		},
		"not registered": func() error {
			_, _, err := unregistered.Decode(wrapped(t, overflowing()), kind, &v1.Status{})
			return err
		},
		"raw": func() error {
			_, _, err := raw.Decode(overflowing(), kind, &v1.Status{})
			return err
		},
		"raw, not registered": func() error {
			_, _, err := NewRawSerializer(empty, empty, "").Decode(overflowing(), kind, &v1.Status{})
			return err
		},
	} {
		before := MalformedMessages()
		if err := decode(); err == nil || !strings.Contains(err.Error(), "malformed protobuf message of") {
			t.Errorf("%s: %v", name, err)
		}
		if n := MalformedMessages() - before; n != 1 {
			t.Errorf("%s: counted %d times", name, n)
		}
	}
}

// TestGoodMessageIsDecoded: as ever.
func TestGoodMessageIsDecoded(t *testing.T) {
	s, _, kind := serializers()
	b, err := (&v1.Status{Message: "hello", Code: 7}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	before := MalformedMessages()
	obj, _, err := s.Decode(wrapped(t, b), kind, nil)
	if n := MalformedMessages() - before; n != 0 {
		t.Errorf("counted %d times", n)
	}
	if status, ok := obj.(*v1.Status); err != nil || !ok || status.Message != "hello" || status.Code != 7 {
		t.Errorf("%+v, %v", obj, err)
	}
}

// TestDecodeFuzz: whatever comes, there is no panic.
func TestDecodeFuzz(t *testing.T) {
	n := 10000
	if os.Getenv("HOLDFAST_EXHAUSTIVE") != "" {
		n = 1000000
	}
	s, raw, kind := serializers()
	r := rand.New(rand.NewSource(1))
	for i := 0; i < n; i++ {
		b := make([]byte, r.Intn(40))
		r.Read(b)
		if r.Intn(2) == 0 {
			b = append(b[:r.Intn(len(b)+1)], overflowing()...)
		}
		raw.Decode(b, kind, &v1.Status{})
		s.Decode(append(append([]byte{}, protoEncodingPrefix...), b...), kind, nil)
		s.Decode(wrapped(t, b), kind, nil)
	}
	t.Logf("%d inputs", n)
}
