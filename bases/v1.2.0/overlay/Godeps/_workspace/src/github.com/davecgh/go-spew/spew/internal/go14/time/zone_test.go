// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package time

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	gotime "time"
)

// tzfile returns a tzfile(5) of the given version whose 32-bit block has the
// transitions, one zone for each name ("NAME/offset" or "NAME/offset/dst") and
// the flags; a second block of a newer version follows as rubbish.
func tzfile(version byte, when []int32, index []byte, zones []string, isstd, isutc []byte) []byte {
	var abbrev, zoneData []byte
	for _, z := range zones {
		parts := strings.Split(z, "/")
		var offset int32
		fmt.Sscan(parts[1], &offset)
		var dst byte
		if len(parts) == 3 {
			dst = 1
		}
		zoneData = binary.BigEndian.AppendUint32(zoneData, uint32(offset))
		zoneData = append(zoneData, dst, byte(len(abbrev)))
		abbrev = append(append(abbrev, parts[0]...), 0)
	}
	out := append([]byte("TZif"), version)
	out = append(out, make([]byte, 15)...)
	for _, n := range []int{len(isutc), len(isstd), 0, len(when), len(zones), len(abbrev)} {
		out = binary.BigEndian.AppendUint32(out, uint32(n))
	}
	for _, w := range when {
		out = binary.BigEndian.AppendUint32(out, uint32(w))
	}
	out = append(append(append(out, index...), zoneData...), abbrev...)
	out = append(append(out, isstd...), isutc...)
	return out
}

var berlin = tzfile(0,
	[]int32{-1693706400, 1427590800, 1445734800, 1459040400, 1477789200},
	[]byte{1, 1, 0, 1, 0},
	[]string{"CET/3600", "CEST/7200/dst"},
	[]byte{1, 0}, []byte{0, 1})

// today's package time parses the same file; its private fields are read here,
// so that the parser is not tested against itself.
func ofToday(t *testing.T, data []byte) string {
	loc, err := gotime.LoadLocationFromTZData("Local", data)
	if err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(loc).Elem()
	var out []string
	for i := 0; i < v.NumField(); i++ {
		switch name := v.Type().Field(i).Name; name {
		case "extend": // newer than Go 1.4
		case "cacheStart", "cacheEnd", "cacheZone": // made from the present moment
		default:
			out = append(out, fmt.Sprintf("%s:%v", name, v.Field(i)))
		}
	}
	return strings.Join(out, " ")
}

func TestParseZone(t *testing.T) {
	fixed := tzfile('2', nil, nil, []string{"GMT/0"}, nil, nil)
	slim := tzfile('2', nil, nil, []string{"/0"}, nil, nil)
	for name, data := range map[string][]byte{"berlin": berlin, "fixed": fixed, "slim": slim} {
		loc := parseZone(data, 0)
		if loc == nil {
			t.Fatalf("%s: refused", name)
		}
		loc.name = "Local"
		got := fmt.Sprintf("name:%v zone:%v tx:%v", loc.name, loc.zone, loc.tx)
		today := append([]byte{}, data...)
		today[4] = 0 // or the rest of the file would be read
		if want := ofToday(t, today); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

func TestZoneCache(t *testing.T) {
	for now, want := range map[int64]string{
		1458165663:  "1445734800 1459040400 CET",  // 16 March 2016
		1468000000:  "1459040400 1477789200 CEST", // that summer
		2000000000:  "1477789200 9223372036854775807 CET",
		-1800000000: "0 0 none",
	} {
		loc := parseZone(berlin, now)
		zone := "none"
		if loc.cacheZone != nil {
			zone = loc.cacheZone.name
		}
		if got := fmt.Sprint(loc.cacheStart, " ", loc.cacheEnd, " ", zone); got != want {
			t.Errorf("at %d: got %s, want %s", now, got, want)
		}
	}
}

func TestParseZoneRefuses(t *testing.T) {
	bad := map[string][]byte{
		"nothing":         nil,
		"no magic":        append([]byte("TZix"), berlin[4:]...),
		"cut short":       berlin[:len(berlin)-1],
		"unknown version": append([]byte("TZif4"), berlin[5:]...),
		"zone index":      tzfile(0, []int32{1}, []byte{7}, []string{"A/0"}, nil, nil),
		"no zone at all":  tzfile(0, nil, nil, nil, nil, nil),
		"huge count":      append(append([]byte{}, berlin[:20]...), make([]byte, 24+4)...)[:44],
	}
	copy(bad["huge count"][20:], []byte{0xff, 0xff, 0xff, 0xff})
	for name, data := range bad {
		if loc := parseZone(data, 0); loc != nil {
			t.Errorf("%s: accepted as %+v", name, loc)
		}
	}
}

func TestLoadLocal(t *testing.T) {
	files := map[string][]byte{
		"/etc/localtime":                      berlin,
		"/usr/share/zoneinfo//Europe/Berlin":  berlin,
		"/usr/lib/locale/TZ//Somewhere/Else":  berlin,
		"/usr/share/zoneinfo//Not/A/ZoneFile": []byte("no"),
	}
	read := func(name string) ([]byte, error) {
		if b, ok := files[name]; ok {
			return b, nil
		}
		return nil, os.ErrNotExist
	}
	for _, c := range []struct {
		tz   string
		set  bool
		want string
		n    int
	}{
		{"", false, "Local", 2},
		{"", true, "UTC", 0},
		{"UTC", true, "UTC", 0},
		{"Europe/Berlin", true, "Europe/Berlin", 2},
		{"Somewhere/Else", true, "Somewhere/Else", 2},
		{"Not/A/ZoneFile", true, "UTC", 0},
		{"Nowhere", true, "UTC", 0},
	} {
		loc := loadLocal(c.tz, c.set, read, 0)
		if loc.name != c.want || len(loc.zone) != c.n {
			t.Errorf("TZ=%q (set: %v): %s with %d zones, want %s with %d", c.tz, c.set, loc.name, len(loc.zone), c.want, c.n)
		}
	}
	none := func(string) ([]byte, error) { return nil, errors.New("no file") }
	if loc := loadLocal("", false, none, 0); !reflect.DeepEqual(*loc, Location{name: "UTC"}) {
		t.Errorf("without /etc/localtime: %+v", loc)
	}
}

func TestFrom(t *testing.T) {
	if got := From(gotime.Time{}); got != (Time{}) {
		t.Errorf("the zero time is %+v", got)
	}
	if got := From(gotime.Unix(0, 5).UTC()); got.sec != 62135596800 || got.nsec != 5 || got.loc != &utcLoc {
		t.Errorf("1970 in UTC is %+v", got)
	}
	if got := From(gotime.Unix(-62135596800, 0).Local()); got.sec != 0 || got.loc == nil || got.loc != localLoc {
		t.Errorf("the first second of year 1 in the local zone is %+v", got)
	}
}
