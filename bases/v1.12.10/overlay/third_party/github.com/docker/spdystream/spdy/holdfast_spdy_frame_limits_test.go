// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package spdy

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

func refused(t *testing.T, of string) float64 {
	var m dto.Metric
	if err := framesRefused.WithLabelValues(of).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// control is a control frame of version 3.
func control(kind ControlFrameType, body []byte) []byte {
	var b bytes.Buffer
	binary.Write(&b, binary.BigEndian, uint32(0x80030000)|uint32(kind))
	binary.Write(&b, binary.BigEndian, uint32(len(body)))
	b.Write(body)
	return b.Bytes()
}

// blocks compresses all header blocks that tests make up: a new writer takes 1 MB.
var blocks = zlib.NewWriter(nil)

// block is a compressed header block that announces count headers and has the fields, each
// behind a length.
func block(count uint32, fields ...interface{}) []byte {
	var b bytes.Buffer
	z := blocks
	z.Reset(&b)
	binary.Write(z, binary.BigEndian, count)
	for _, f := range fields {
		switch f := f.(type) {
		case uint32:
			binary.Write(z, binary.BigEndian, f)
		case string:
			binary.Write(z, binary.BigEndian, uint32(len(f)))
			io.WriteString(z, f)
		}
	}
	z.Close()
	return b.Bytes()
}

// frames are the three kinds that have headers, with the block.
func frames(block []byte) map[string][]byte {
	id := []byte{0, 0, 0, 1}
	return map[string][]byte{
		"SYN_STREAM": control(TypeSynStream, append([]byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, block...)),
		"SYN_REPLY":  control(TypeSynReply, append(id, block...)),
		"HEADERS":    control(TypeHeaders, append(id, block...)),
	}
}

// read reads one frame and says how many bytes were allocated for it.
func read(t *testing.T, frame []byte) (Frame, error, uint64) {
	f, err := NewFramer(io.Discard, bytes.NewReader(frame))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := f.ReadFrame()
	runtime.ReadMemStats(&after)
	return got, err, after.TotalAlloc - before.TotalAlloc
}

// allocBound is what one refused frame may take, in bytes: the limit, and the buffers of
// decompression.
const allocBound = 1 << 20

func TestFramesBeyondLimits(t *testing.T) {
	long := strings.Repeat("x", maxHeaderBytes/2)
	for name, tc := range map[string]struct {
		of    string
		block []byte
	}{
		"count":          {ofHeaders, block(2000000)},
		"one more":       {ofHeaders, block(maxHeaders + 1)},
		"name":           {ofHeaderBytes, block(1, uint32(1<<26))},
		"value":          {ofHeaderBytes, block(1, "name", uint32(1<<26))},
		"all bytes":      {ofHeaderBytes, block(2, "a", long, "b", long)},
		"name length":    {ofHeaderBytes, block(1, uint32(maxHeaderBytes+1))},
		"1 MiB of NULs":  {ofHeaderBytes, block(1, "n", strings.Repeat("\x00", 1<<20))},
		"NULs":           {ofHeaders, block(1, "n", strings.Repeat("\x00", maxHeaderBytes-1))},
		"one value more": {ofHeaders, block(2, "a", strings.Repeat("\x00", maxHeaders/2), "b", strings.Repeat("\x00", maxHeaders/2-1))},
	} {
		for kind, frame := range frames(tc.block) {
			before := refused(t, tc.of)
			_, err, bytes := read(t, frame)
			if err == nil {
				t.Errorf("%s, %s: read", name, kind)
			}
			if bytes > allocBound {
				t.Errorf("%s, %s: %d bytes were allocated", name, kind, bytes)
			}
			if n := refused(t, tc.of) - before; n != 1 {
				t.Errorf("%s, %s: counted %v times", name, kind, n)
			}
		}
	}
	for _, n := range []uint32{maxSettings + 1, 10000000, 2} { // two need more bytes than there are
		before := refused(t, ofSettings)
		_, err, bytes := read(t, control(TypeSettings, []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n), 0, 0, 0, 1}))
		if e, ok := err.(*Error); !ok || e.Err != InvalidControlFrame || bytes > allocBound || refused(t, ofSettings)-before != 1 {
			t.Errorf("%d settings: %v, %d bytes were allocated", n, err, bytes)
		}
	}
}

// TestFramesWithinLimits: what is at the limits is read as ever.
func TestFramesWithinLimits(t *testing.T) {
	var many []interface{}
	for i := 0; i < maxHeaders; i++ {
		many = append(many, fmt.Sprintf("h%d", i), strings.Repeat("v", 150))
	}
	for name, tc := range map[string]struct {
		count uint32
		block []byte
	}{
		"none":   {0, block(0)},
		"exec":   {2, block(2, "streamtype", "stdin", "requestid", "7")},
		"many":   {maxHeaders, block(maxHeaders, many...)},
		"values": {1, block(1, "n", strings.Repeat("\x00", maxHeaders-1))},
		"large":  {1, block(1, "n", strings.Repeat("v", maxHeaderBytes-1))},
	} {
		for kind, frame := range frames(tc.block) {
			got, err, _ := read(t, frame)
			if err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
				continue
			}
			h := reflect.ValueOf(got).Elem().FieldByName("Headers").Interface().(http.Header)
			if len(h) != int(tc.count) {
				t.Errorf("%s, %s: %d headers", name, kind, len(h))
			}
		}
	}
	body := []byte{0, 0, 0, 2}
	for i := byte(1); i < 3; i++ {
		body = append(body, 0, 0, 0, i, 0, 0, 0, 10*i)
	}
	got, err, _ := read(t, control(TypeSettings, body))
	if s, ok := got.(*SettingsFrame); err != nil || !ok || len(s.FlagIdValues) != 2 || s.FlagIdValues[1].Value != 20 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestFramesFuzz: whatever comes, reading ends without a panic and with bounded memory; and
// headers within the limits that the framer writes are read back equal.
func TestFramesFuzz(t *testing.T) {
	n := 10000
	if os.Getenv("HOLDFAST_EXHAUSTIVE") != "" {
		n = 1000000
	}
	r := rand.New(rand.NewSource(1))
	kinds := []ControlFrameType{TypeSynStream, TypeSynReply, TypeHeaders, TypeSettings, TypeRstStream, TypePing, TypeGoAway, TypeWindowUpdate}
	var wire bytes.Buffer
	both, err := NewFramer(&wire, &wire) // of one connection: the headers share a dictionary
	if err != nil {
		t.Fatal(err)
	}
	number := func() uint32 { return uint32(r.Int63()) >> uint(r.Intn(32)) }
	for i := 0; i < n; i++ {
		if i%2 == 0 {
			var fields []interface{}
			for j := r.Intn(6); j > 0; j-- {
				if r.Intn(3) == 0 {
					fields = append(fields, number())
				} else {
					fields = append(fields, strings.Repeat("a", r.Intn(30)))
				}
			}
			body := make([]byte, 4+r.Intn(8))
			r.Read(body)
			if r.Intn(2) == 0 {
				body = append(body, block(number()>>uint(r.Intn(32)), fields...)...)
			}
			f := &Framer{r: bytes.NewReader(control(kinds[r.Intn(len(kinds))], body))} // NewFramer makes a compressor too
			var before, after runtime.MemStats
			if i%100 == 0 { // ReadMemStats stops the world
				runtime.ReadMemStats(&before)
			}
			f.ReadFrame()
			if i%100 == 0 {
				if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > allocBound {
					t.Fatalf("seed %d: %d bytes were allocated", i, after.TotalAlloc-before.TotalAlloc)
				}
			}
			continue
		}
		want := http.Header{}
		for j := r.Intn(5); j > 0; j-- {
			want.Set(fmt.Sprintf("H%d", r.Intn(100)), strings.Repeat("v", 1+r.Intn(2000)))
		}
		if err := both.WriteFrame(&SynStreamFrame{StreamId: 1, Headers: want}); err != nil {
			t.Fatal(err)
		}
		got, err := both.ReadFrame()
		if s, ok := got.(*SynStreamFrame); err != nil || !ok || !reflect.DeepEqual(s.Headers, want) {
			t.Fatalf("seed %d: %v, %v", i, got, err)
		}
	}
	t.Logf("%d inputs", n)
}
