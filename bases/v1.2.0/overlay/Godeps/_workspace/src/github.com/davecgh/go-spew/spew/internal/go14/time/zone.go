// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package time

import (
	"bytes"
	"encoding/binary"
)

const (
	alpha = -1 << 63
	omega = 1<<63 - 1
)

// zoneDirs are the directories in which Go 1.4 looked for a zone by name. It
// also had the zip file of its own GOROOT, which no machine that only runs a
// binary has.
var zoneDirs = []string{
	"/usr/share/zoneinfo/",
	"/usr/share/lib/zoneinfo/",
	"/usr/lib/locale/TZ/",
}

// loadLocal returns the local zone as Go 1.4 set it up: from the file that $TZ
// names, from /etc/localtime if $TZ is not set, and a bare "UTC" if $TZ is
// empty or "UTC" or the file cannot be used. now is in Unix seconds.
func loadLocal(tz string, set bool, readFile func(string) ([]byte, error), now int64) *Location {
	load := func(file, name string) *Location {
		data, err := readFile(file)
		if err != nil {
			return nil
		}
		loc := parseZone(data, now)
		if loc != nil {
			loc.name = name
		}
		return loc
	}
	switch {
	case !set:
		if loc := load("/etc/localtime", "Local"); loc != nil {
			return loc
		}
	case tz != "" && tz != "UTC":
		for _, dir := range zoneDirs {
			if loc := load(dir+"/"+tz, tz); loc != nil {
				return loc
			}
		}
	}
	return &Location{name: "UTC"}
}

// parseZone reads the first block of a tzfile(5): the one with 32-bit times,
// which is all that Go 1.4 read. It returns nil if Go 1.4 would have refused
// the data.
func parseZone(data []byte, now int64) *Location {
	const headerSize = 4 + 1 + 15 + 6*4
	if len(data) < headerSize || string(data[:4]) != "TZif" {
		return nil
	}
	if v := data[4]; v != 0 && v != '2' && v != '3' {
		return nil
	}
	var count [6]int
	for i := range count {
		count[i] = int(binary.BigEndian.Uint32(data[20+4*i:]))
	}
	rest, short := data[headerSize:], false
	take := func(n int) []byte {
		if short || len(rest) < n {
			short = true
			return nil
		}
		var out []byte
		out, rest = rest[:n], rest[n:]
		return out
	}
	nUTC, nStd, nLeap, nTime, nZone, nChar := count[0], count[1], count[2], count[3], count[4], count[5]
	times := take(nTime * 4)
	indexes := take(nTime)
	zones := take(nZone * 6)
	abbrev := take(nChar)
	take(nLeap * 8)
	isstd := take(nStd)
	isutc := take(nUTC)
	if short {
		return nil
	}

	loc := &Location{zone: make([]zone, nZone), tx: make([]zoneTrans, nTime)}
	for i := range loc.zone {
		entry := zones[6*i:]
		if int(entry[5]) >= len(abbrev) {
			return nil
		}
		name := abbrev[entry[5]:]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		loc.zone[i] = zone{
			name:   string(name),
			offset: int(int32(binary.BigEndian.Uint32(entry))),
			isDST:  entry[4] != 0,
		}
	}
	for i := range loc.tx {
		if int(indexes[i]) >= len(loc.zone) {
			return nil
		}
		loc.tx[i] = zoneTrans{
			when:  int64(int32(binary.BigEndian.Uint32(times[4*i:]))),
			index: indexes[i],
			isstd: i < len(isstd) && isstd[i] != 0,
			isutc: i < len(isutc) && isutc[i] != 0,
		}
	}
	if len(loc.tx) == 0 {
		if len(loc.zone) == 0 {
			// Go 1.4 would have crashed on the next line but one.
			return nil
		}
		loc.tx = append(loc.tx, zoneTrans{when: alpha})
	}
	for i, t := range loc.tx {
		last := i+1 == len(loc.tx)
		if t.when <= now && (last || now < loc.tx[i+1].when) {
			loc.cacheStart, loc.cacheEnd = t.when, omega
			if !last {
				loc.cacheEnd = loc.tx[i+1].when
			}
			loc.cacheZone = &loc.zone[t.index]
		}
	}
	return loc
}
