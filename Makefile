# Thin front of the holdfast command (tools/); each target is one line of it or
# of hack/. BASE, OFFLINE=1, LAB, PROFILE and PATCH are set on the command line.
BASE    ?= v1.9.11
PROFILE ?= short
SEED    ?= 1
OFFLINE ?=
PATCH   ?=
LAB     ?=

H := _output/tools/holdfast --base $(BASE)
MODFLAG := $(if $(OFFLINE),-mod=vendor,-mod=readonly)

.PHONY: all tool kubectl-holdfast source vendor test check proofs test-packages upstream-tests upstream-tests-touched hash-oracle labs lab binaries up down \
	patches-check patches-extract patches-normalise discard clean

all: tool kubectl-holdfast ## build the drop-in binaries and kubectl-holdfast (the default)
	@$(H) build $(if $(OFFLINE),--offline)

tool: ## build the holdfast command
	@hack/build-tool.sh tools ./cmd/holdfast _output/tools/holdfast $(MODFLAG)

kubectl-holdfast: ## build what operators run, _output/bin/kubectl-holdfast; needs neither upstream nor a tree
	@hack/build-tool.sh cmd ./kubectl-holdfast _output/bin/kubectl-holdfast $(MODFLAG)

binaries: tool ## build every binary that the labs run, stock and ours, old releases included
	@$(H) binaries

source: tool ## write both source trees of BASE below _output/src
	@$(H) source --variant ours && $(H) source --variant stock

vendor: tool ## write vendor/, cmd/vendor/ and tools/vendor/ for OFFLINE=1
	@$(H) vendor

test: tool kubectl-holdfast test-packages ## everything CI runs: rules, unit tests, upstream's tests of touched packages, labs (short)
	@$(H) test

check: tool test-packages source ## repository rules and our own unit tests only
	@$(H) test --part rules,unit,operators

proofs: all test-packages ## build from empty caches in two folders, and without a network; compare the sums (long, root)
	@cd tools && HOLDFAST_PROOFS=long go test -count=1 -v -timeout=3h ./internal/proofs

test-packages: ## install the Debian packages that the rules and unit tests miss (root)
	@hack/install-test-packages.sh

upstream-tests: tool ## upstream's tests of everything the binaries link, stock against ours (long)
	@$(H) upstream-tests --set all

upstream-tests-touched: tool ## upstream's tests of the packages that overlay or series touch
	@$(H) upstream-tests --set touched

hash-oracle: tool kubectl-holdfast ## container hashes against the code of 1.6 to 1.9, N=10000000 random containers
	@cd tools && go run ./cmd/container-hash-oracle -n $(or $(N),100000)

labs: tool kubectl-holdfast ## all labs in PROFILE
	@$(H) lab --all --profile $(PROFILE) --seed $(SEED)

lab: tool kubectl-holdfast ## one lab: make lab LAB=cluster-smoke PROFILE=long
	@$(H) lab $(LAB) --profile $(PROFILE) --seed $(SEED)

up: tool ## a cluster of our binaries to try things on; prints its kubeconfig
	@$(H) up

down: tool ## stop that cluster
	@$(H) down

patches-check: tool ## check names, trailers and normal form of the patches
	@$(H) patches check

patches-extract: tool ## carry edits in _output/src/$(BASE)/ours back into overlay and patches
	@$(H) patches extract $(if $(PATCH),--patch $(PATCH))

patches-normalise: tool ## rewrite patches in normal form
	@$(H) patches normalise

discard: tool ## give up edits in _output/src/$(BASE)/ours
	@$(H) discard

clean: ## remove everything generated but vendor/
	@rm -rf _output
