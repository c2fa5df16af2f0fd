// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplatehash

import (
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

var (
	quantityRE = regexp.MustCompile(`^([0-9]+)(?:\.([0-9]*))?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$`)

	decimalSuffix = map[string]int{"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
	binarySuffix  = map[string]int{"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

	maxQuantity = big.NewInt(1<<63 - 1)
)

// amount is a parsed quantity: num and denom are the digits before and after
// the point, exponent is of 10, or of 2 where format is BinarySI.
type amount struct {
	num, denom string
	exponent   int
	format     string
}

func parseQuantity(s string) (amount, error) {
	m := quantityRE.FindStringSubmatch(s)
	if m == nil {
		return amount{}, fmt.Errorf("quantity %q is not one that this tool reads (digits with a suffix, not negative)", s)
	}
	a := amount{num: m[1], denom: m[2], format: "DecimalSI"}
	if e, ok := binarySuffix[m[3]]; ok {
		a.exponent, a.format = e, "BinarySI"
	} else if e, ok := decimalSuffix[m[3]]; ok {
		a.exponent = e
	} else {
		e, err := strconv.Atoi(m[3][1:])
		if err != nil {
			return amount{}, fmt.Errorf("quantity %q: %w", s, err)
		}
		a.exponent, a.format = e, "DecimalExponent"
	}
	return a, nil
}

// scaled is the amount times 10^digits, or an error where it is not a whole
// number: the releases round such an amount, but an API server never returns
// one.
func (a amount) scaled(s string, digits int) (*big.Int, error) {
	v, ok := new(big.Int).SetString(a.num+a.denom, 10)
	if !ok {
		return nil, fmt.Errorf("quantity %q is not a number", s)
	}
	ten := digits - len(a.denom)
	if a.format == "BinarySI" {
		v.Lsh(v, uint(a.exponent))
	} else {
		ten += a.exponent
	}
	if ten >= 0 {
		return v.Mul(v, powerOfTen(ten)), nil
	}
	power := powerOfTen(-ten)
	q, rest := v.QuoRem(v, power, new(big.Int))
	if rest.Sign() != 0 {
		return nil, fmt.Errorf("quantity %q has more than %d digits after the point", s, digits)
	}
	return q, nil
}

func powerOfTen(n int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}

// dec is the dump of an inf.Dec.
func (r *Release) dec(v *big.Int, scale int) string {
	words := "<nil>"
	if v.Sign() != 0 {
		list := []string{}
		for _, w := range v.Bits() {
			if r.hexWords {
				list = append(list, fmt.Sprintf("0x%x", uint64(w)))
			} else {
				list = append(list, fmt.Sprint(uint64(w)))
			}
		}
		words = "[" + strings.Join(list, " ") + "]"
	}
	return fmt.Sprintf("{unscaled:(big.Int){neg:(bool)false abs:(big.nat)%s} scale:(inf.Scale)%d}", words, scale)
}

// quantity is the dump of a resource.Quantity that was read from s, or of its
// zero value.
//
// From 1.3 on a Quantity keeps the text that it was read from, if that text is
// known to be canonical at a glance, and keeps its text for good once it has
// been written. This is the dump of one that was read and not written.
func (r *Release) quantity(s string, zero bool) (string, error) {
	if zero {
		if r.oldQuantity {
			return "{Amount:(*inf.Dec)<nil> Format:(resource.Format)}", nil
		}
		return "{i:(resource.int64Amount){value:(int64)0 scale:(resource.Scale)0} d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string) Format:(resource.Format)}", nil
	}
	a, err := parseQuantity(s)
	if err != nil {
		return "", err
	}
	if r.oldQuantity {
		v, err := a.scaled(s, 3)
		if err != nil {
			return "", err
		}
		if v.Cmp(new(big.Int).Mul(maxQuantity, big.NewInt(1000))) > 0 {
			return "", fmt.Errorf("quantity %q is larger than a quantity can be", s)
		}
		return fmt.Sprintf("{Amount:(*inf.Dec)%s Format:(resource.Format)%s}", r.dec(v, 3), a.format), nil
	}
	fast := func(value int64, scale int, keep bool) string {
		text := ""
		if keep {
			text = s
		}
		return fmt.Sprintf("{i:(resource.int64Amount){value:(int64)%d scale:(resource.Scale)%d} d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string)%s Format:(resource.Format)%s}",
			value, scale, text, a.format)
	}
	if s == "0" {
		return fast(0, 0, true), nil
	}

	// Amounts that an int64 holds with room to spare are kept in one. The
	// bounds are on digits, not on the value.
	precision, scale, shift := 0, 0, 0
	if a.format == "BinarySI" {
		precision = -1
		if a.denom == "" {
			shift = a.exponent
			precision = 15 - len(a.num) - int(float32(a.exponent)*3/10) - 1
		}
	} else {
		scale = a.exponent - len(a.denom)
		precision = 18 - len(a.num) - len(a.denom)
	}
	if precision >= 0 && scale >= -9 {
		digits := a.num + a.denom
		value, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return "", fmt.Errorf("quantity %q: %w", s, err)
		}
		keep := false
		if a.format == "BinarySI" {
			keep = a.exponent%10 == 0 && value&7 != 0
		} else {
			keep = scale%3 == 0 && !strings.HasSuffix(digits, "000") && digits[0] != '0'
		}
		return fast(value<<uint(shift), scale, keep), nil
	}
	digits := 9
	if r.internal { // the conversion from v1 rounds to thousandths
		digits = 3
	}
	v, err := a.scaled(s, digits)
	if err != nil {
		return "", err
	}
	if v.Cmp(new(big.Int).Mul(maxQuantity, powerOfTen(digits))) > 0 {
		return "", fmt.Errorf("quantity %q is larger than this tool knows the dump of", s)
	}
	return fmt.Sprintf("{i:(resource.int64Amount){value:(int64)0 scale:(resource.Scale)0} d:(resource.infDecAmount){Dec:(*inf.Dec)%s} s:(string) Format:(resource.Format)%s}",
		r.dec(v, digits), a.format), nil
}
