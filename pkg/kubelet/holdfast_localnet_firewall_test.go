// Copyright The Holdfast Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilfeaturetesting "k8s.io/apiserver/pkg/util/feature/testing"
	"k8s.io/kubernetes/pkg/features"
	utiliptables "k8s.io/kubernetes/pkg/util/iptables"
	iptablestest "k8s.io/kubernetes/pkg/util/iptables/testing"
)

// rulesInMemory keeps the rules of all chains.
type rulesInMemory struct {
	*iptablestest.FakeIPTables
	rules []string
	fails bool
	ipv6  bool
}

func (f *rulesInMemory) IsIpv6() bool { return f.ipv6 }

func rule(table utiliptables.Table, chain utiliptables.Chain, args []string) string {
	return fmt.Sprintf("%s %s %s", table, chain, strings.Join(args, " "))
}

func (f *rulesInMemory) EnsureRule(position utiliptables.RulePosition, table utiliptables.Table, chain utiliptables.Chain, args ...string) (bool, error) {
	r := rule(table, chain, args)
	if f.fails && strings.Contains(r, "localnet") {
		return false, errors.New("no module conntrack")
	}
	for _, have := range f.rules {
		if have == r {
			return true, nil
		}
	}
	f.rules = append(f.rules, r)
	return false, nil
}

func (f *rulesInMemory) DeleteRule(table utiliptables.Table, chain utiliptables.Chain, args ...string) error {
	var left []string
	for _, have := range f.rules {
		if have != rule(table, chain, args) {
			left = append(left, have)
		}
	}
	f.rules = left
	return nil
}

func TestLocalnetFirewall(t *testing.T) {
	const want = "filter KUBE-FIREWALL -m comment --comment block incoming localnet connections --dst 127.0.0.0/8 ! --src 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
	added := func() float64 {
		var m dto.Metric
		if err := localnetRulesAdded.Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	sync := func(f *rulesInMemory, on bool) []string {
		defer utilfeaturetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.LocalnetFirewall, on)()
		kl := &Kubelet{iptClient: f, iptablesMasqueradeBit: 14, iptablesDropBit: 15}
		kl.syncNetworkUtil()
		return f.rules
	}
	has := func(rules []string) (n int) {
		for _, r := range rules {
			if r == want {
				n++
			}
		}
		return n
	}
	before := added()
	f := &rulesInMemory{FakeIPTables: iptablestest.NewFake()}
	stock := sync(f, false)
	if has(stock) != 0 || len(stock) < 5 {
		t.Fatalf("gate off: %q", stock)
	}
	for i := 0; i < 2; i++ {
		rules := sync(f, true)
		if has(rules) != 1 || len(rules) != len(stock)+1 {
			t.Errorf("gate on, sync %d: %q", i, rules)
		}
	}
	if n := added() - before; n != 1 {
		t.Errorf("counted %v times that the rule was added", n)
	}
	if rules := sync(f, false); !reflect.DeepEqual(rules, stock) {
		t.Errorf("gate off again: %q, before it was on %q", rules, stock)
	}
	// A node that cannot have the rule has all others.
	if rules := sync(&rulesInMemory{FakeIPTables: iptablestest.NewFake(), fails: true}, true); !reflect.DeepEqual(rules, stock) {
		t.Errorf("the rule is refused: %q", rules)
	}
	if rules := sync(&rulesInMemory{FakeIPTables: iptablestest.NewFake(), ipv6: true}, true); !reflect.DeepEqual(rules, stock) {
		t.Errorf("IPv6: %q", rules)
	}
}
