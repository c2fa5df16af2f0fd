// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// The three forms in which a Quantity is written, as the releases name them.
const (
	decimalSI       = "DecimalSI"
	decimalExponent = "DecimalExponent"
	binarySI        = "BinarySI"
)

var (
	decimalSuffix = map[string]int{"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
	binarySuffix  = map[string]int{"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

	maxQuantity = big.NewInt(1<<63 - 1)
)

// quantity is a resource.Quantity of 1.3 and later, whose code is the same up
// to today's but for what Layout has. Small amounts are value × 10^scale in an
// int64; others are a decimal, dec × 10^-decScale.
type quantity struct {
	value    int64
	scale    int
	dec      *big.Int
	decScale int
	// text is what it was read from, kept where that is canonical at a glance.
	text   string
	format string
}

// amount is the text of a quantity in its parts.
type amount struct {
	negative bool
	number   string // with sign, zeros and point: what is read as a decimal
	num      string // digits before the point without leading zeros, at least "0"
	denom    string // digits after it
	exponent int    // of 10, or of 2 where format is binarySI
	format   string
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

func splitQuantity(s string) (amount, error) {
	bad := func(why string) (amount, error) { return amount{}, fmt.Errorf("quantity %.60q: %s", s, why) }
	if len(s) > maxDigits {
		return bad(fmt.Sprintf("it is longer than the %d bytes that this program reads", maxDigits))
	}
	if s == "" {
		return bad("it is empty")
	}
	a := amount{num: "0", number: "0", format: decimalSI}
	rest := s
	if rest[0] == '-' || rest[0] == '+' {
		a.negative, rest = rest[0] == '-', rest[1:]
	}
	// A number of zeros, or a sign alone, is 0, and what follows the zeros is
	// not looked at if there is nothing.
	if rest = strings.TrimLeft(rest, "0"); rest == "" {
		return a, nil
	}
	if n := digits(rest); n > 0 {
		a.num, rest = rest[:n], rest[n:]
	}
	if strings.HasPrefix(rest, ".") {
		n := digits(rest[1:])
		a.denom, rest = rest[1:1+n], rest[1+n:]
	}
	a.number = s[:len(s)-len(rest)]
	if e, ok := binarySuffix[rest]; ok {
		a.exponent, a.format = e, binarySI
	} else if e, ok := decimalSuffix[rest]; ok {
		a.exponent = e
	} else if len(rest) > 1 && (rest[0] == 'e' || rest[0] == 'E') {
		e, err := strconv.ParseInt(rest[1:], 10, 32)
		if err != nil {
			return bad("the exponent is no number of 32 bits")
		}
		a.exponent, a.format = int(e), decimalExponent
	} else {
		return bad("digits with a suffix such as m, k, Mi or e3 are expected")
	}
	return a, nil
}

// The bounds of what is written out as digits, far beyond an int64, and what keeps the work
// for one quantity to some milliseconds: maxExponent is of the powers of ten, maxDigits of the
// text. No release has any.
const maxExponent, maxDigits = 1000, 1000

// parseQuantity reads a quantity as the releases do. The error is for text that
// they refuse too, and for what is beyond maxExponent or maxDigits.
func parseQuantity(s string) (quantity, error) {
	if s == "0" {
		return quantity{text: s, format: decimalSI}, nil
	}
	a, err := splitQuantity(s)
	if err != nil {
		return quantity{}, err
	}
	if q, ok := a.small(s); ok {
		return q, nil
	}
	unscaled, ok := new(big.Int).SetString(strings.TrimPrefix(strings.Replace(a.number, ".", "", 1), "+"), 10)
	if !ok {
		return quantity{}, fmt.Errorf("quantity %q: no digits", s)
	}
	unscaled.Abs(unscaled)
	q := quantity{dec: unscaled, decScale: len(a.denom), format: a.format}
	if a.format == binarySI {
		unscaled.Lsh(unscaled, uint(a.exponent))
	} else {
		q.decScale -= a.exponent
	}
	if q.decScale < -maxExponent || q.decScale > maxExponent {
		return quantity{}, fmt.Errorf("quantity %q: the exponent is too large for this program", s)
	}
	if unscaled.Sign() != 0 {
		q.round(9)
	}
	if a.format == binarySI {
		if q.compare(maxQuantity) > 0 {
			q.dec, q.decScale = new(big.Int).Set(maxQuantity), 0
		}
		if unscaled.Sign() > 0 && q.compare(big.NewInt(1)) < 0 {
			q.format = decimalSI
		}
	}
	if a.negative {
		q.dec.Neg(q.dec)
	}
	return q, nil
}

// small is a quantity that an int64 holds with room to spare. The bounds are on
// the digits, not on the value.
func (a amount) small(s string) (quantity, bool) {
	precision, scale, shift := 18-len(a.num)-len(a.denom), a.exponent, 0
	if a.format == binarySI {
		if a.denom != "" {
			return quantity{}, false
		}
		scale, shift = 0, a.exponent
		precision = 15 - len(a.num) - int(float32(a.exponent)*3/10) - 1
	}
	scale -= len(a.denom)
	if precision < 0 || scale < -9 {
		return quantity{}, false
	}
	shifted := a.num + a.denom
	value, err := strconv.ParseInt(shifted, 10, 64)
	if err != nil {
		return quantity{}, false
	}
	result := value << shift
	if result>>shift != value || result < 0 {
		return quantity{}, false
	}
	if a.negative {
		result = -result
	}
	q := quantity{value: result, scale: scale, format: a.format}
	if a.format == binarySI {
		if value&7 != 0 {
			q.text = s
		}
	} else if scale%3 == 0 && !strings.HasSuffix(shifted, "000") && shifted[0] != '0' {
		q.text = s
	}
	return q, true
}

// round makes dec a number of 10^-scale, away from zero.
func (q *quantity) round(scale int) {
	if scale >= q.decScale {
		q.dec.Mul(q.dec, powerOfTen(scale-q.decScale))
	} else {
		rest := new(big.Int)
		q.dec.QuoRem(q.dec, powerOfTen(q.decScale-scale), rest)
		if rest.Sign() != 0 {
			q.dec.Add(q.dec, big.NewInt(int64(rest.Sign())))
		}
	}
	q.decScale = scale
}

func powerOfTen(n int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}

// unscaled is the amount as a number and its scale: n × 10^-scale.
func (q quantity) unscaled() (*big.Int, int) {
	if q.dec != nil {
		return new(big.Int).Set(q.dec), q.decScale
	}
	return big.NewInt(q.value), -q.scale
}

// compare compares the amount with a whole number.
func (q quantity) compare(n *big.Int) int {
	v, scale := q.unscaled()
	if scale < 0 {
		v.Mul(v, powerOfTen(-scale))
		scale = 0
	}
	return v.Cmp(new(big.Int).Mul(n, powerOfTen(scale)))
}

// String is the quantity's canonical form, or the text that it was read from
// where that is kept.
func (q quantity) String() string {
	if q.text != "" {
		return q.text
	}
	v, scale := q.unscaled()
	if v.Sign() == 0 {
		return "0"
	}
	format := q.format
	if format == binarySI {
		whole := quantity{dec: new(big.Int).Set(v), decScale: scale}
		if q.compare(big.NewInt(-1024)) > 0 && q.compare(big.NewInt(1024)) < 0 {
			format = decimalSI
		} else if whole.round(0); q.compare(whole.dec) != 0 {
			format = decimalSI
		} else {
			v = whole.dec
		}
	}
	if format == binarySI {
		times := removeFactors(v, 1024)
		for suffix, e := range binarySuffix {
			if e == 10*times {
				return v.String() + suffix
			}
		}
		return v.String()
	}
	exponent := removeFactors(v, 10) - scale
	for exponent%3 != 0 {
		v.Mul(v, big.NewInt(10))
		exponent--
	}
	if format == decimalSI {
		for suffix, e := range decimalSuffix {
			if e == exponent {
				return v.String() + suffix
			}
		}
		// Beyond E the releases have no suffix, and write none.
		return v.String()
	}
	if exponent == 0 {
		return v.String()
	}
	return v.String() + "e" + strconv.Itoa(exponent)
}

// removeFactors divides v, which is not 0, by factor while nothing remains.
func removeFactors(v *big.Int, factor int64) (times int) {
	f, rest := big.NewInt(factor), new(big.Int)
	for {
		q, _ := new(big.Int).QuoRem(v, f, rest)
		if rest.Sign() != 0 {
			return times
		}
		v.Set(q)
		times++
	}
}

// readQuantity is the Quantity that v, its JSON, is decoded to, on the wire or
// off it. nil is its zero value.
func readQuantity(v any, wire bool) (quantity, error) {
	var q quantity
	switch v := v.(type) {
	case nil:
	case string, json.Number:
		var err error
		if q, err = parseQuantity(strings.TrimSpace(fmt.Sprint(v))); err != nil {
			return quantity{}, err
		}
	default:
		return quantity{}, fmt.Errorf("not a quantity: %s", jsonText(v))
	}
	if wire {
		return parseQuantity(q.String())
	}
	return q, nil
}

// quantity is the dump of a resource.Quantity.
//
// From 1.3 on a Quantity keeps the text that it was read from, if that text is
// known to be canonical at a glance, and keeps its text for good once it has
// been written. This is the dump of one that was read and not written.
func (l Layout) quantity(v any) (string, error) {
	if l.DecQuantity {
		return l.decQuantity(v)
	}
	q, err := readQuantity(v, l.Wire)
	if err != nil {
		return "", err
	}
	dec := "<nil>"
	if q.dec != nil {
		if l.Milli {
			exact := quantity{dec: new(big.Int).Set(q.dec), decScale: q.decScale}
			if exact.round(3); q.compareTo(exact) != 0 || q.dec.Sign() <= 0 || q.compare(maxQuantity) > 0 {
				return "", fmt.Errorf("quantity %q: the dump of a negative one, one with more than 3 digits after the point or one beyond an int64 is not known", fmt.Sprint(v))
			}
			q.dec, q.decScale = exact.dec, 3
		}
		dec = l.dec(q.dec, q.decScale)
	}
	return fmt.Sprintf("{i:(resource.int64Amount){value:(int64)%d scale:(resource.Scale)%d} d:(resource.infDecAmount){Dec:(*inf.Dec)%s} s:(string)%s Format:(resource.Format)%s}",
		q.value, q.scale, dec, q.text, q.format), nil
}

// compareTo compares two amounts.
func (q quantity) compareTo(o quantity) int {
	a, as := q.unscaled()
	b, bs := o.unscaled()
	if as < bs {
		a.Mul(a, powerOfTen(bs-as))
	} else {
		b.Mul(b, powerOfTen(as-bs))
	}
	return a.Cmp(b)
}

// dec is the dump of an inf.Dec.
func (l Layout) dec(v *big.Int, scale int) string {
	words := "<nil>"
	if v.Sign() != 0 {
		list := []string{}
		for _, w := range v.Bits() {
			if l.HexWords && w == 0 {
				list = append(list, "<nil>") // go-spew takes it for an address
			} else if l.HexWords {
				list = append(list, fmt.Sprintf("0x%x", uint64(w)))
			} else {
				list = append(list, fmt.Sprint(uint64(w)))
			}
		}
		words = "[" + strings.Join(list, " ") + "]"
	}
	return fmt.Sprintf("{unscaled:(big.Int){neg:(bool)%t abs:(big.nat)%s} scale:(inf.Scale)%d}", v.Sign() < 0, words, scale)
}

// decQuantity is the dump of a resource.Quantity of 1.2. Amounts that this
// release rounds are an error: an API server never returns one.
func (l Layout) decQuantity(v any) (string, error) {
	if v == nil {
		return "{Amount:(*inf.Dec)<nil> Format:(resource.Format)}", nil
	}
	var s string
	switch v := v.(type) {
	case string, json.Number:
		s = fmt.Sprint(v)
	default:
		return "", fmt.Errorf("not a quantity: %s", jsonText(v))
	}
	a, err := splitQuantity(s)
	if err != nil {
		return "", err
	}
	if a.negative {
		return "", fmt.Errorf("quantity %q: the dump of a negative one is not known", s)
	}
	n, ok := new(big.Int).SetString(strings.TrimPrefix(strings.Replace(a.number, ".", "", 1), "+"), 10)
	if !ok {
		return "", fmt.Errorf("quantity %q: no digits", s)
	}
	exact := quantity{dec: n, decScale: len(a.denom)}
	if a.format == binarySI {
		n.Lsh(n, uint(a.exponent))
	} else {
		exact.decScale -= a.exponent
	}
	if exact.decScale < -maxExponent || exact.decScale > maxExponent {
		return "", fmt.Errorf("quantity %q: the exponent is too large for this program", s)
	}
	rounded := quantity{dec: new(big.Int).Set(n), decScale: exact.decScale}
	if rounded.round(3); rounded.compareTo(exact) != 0 {
		return "", fmt.Errorf("quantity %q has more than 3 digits after the point", s)
	}
	if rounded.compare(maxQuantity) > 0 {
		return "", errors.New("quantity " + strconv.Quote(s) + " is larger than a quantity can be")
	}
	return fmt.Sprintf("{Amount:(*inf.Dec)%s Format:(resource.Format)%s}", l.dec(rounded.dec, 3), a.format), nil
}

// sorted sorts a list and returns it.
func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
