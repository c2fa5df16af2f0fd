# Thin front of the two commands in tools/; each target is one line of them or
# of hack/. The settings are given on the command line (make help).
# The base is the one whose bases/*/base.json says "default".
BASE    ?=
PROFILE ?= short
SEED    ?= 1
OFFLINE ?=
PATCH   ?=
MINUS   ?=
SUITE   ?=
LAB     ?=
SEEDS   ?=
STOCK   ?=
SUMS    ?=
DB      ?=
OUT     ?=
KEYS    ?=
SNAPSHOT ?=

# The packages of the fixes of vulnerabilities, and of patch-errors, whose tests make up inputs (make fuzz).
FUZZED := k8s.io/kubernetes/pkg/volume/git_repo github.com/docker/spdystream/spdy k8s.io/kubernetes/pkg/util/outputlimit \
	k8s.io/kubernetes/pkg/util/mount k8s.io/client-go/transport k8s.io/apimachinery/pkg/runtime/serializer/protobuf \
	k8s.io/apiserver/pkg/endpoints/handlers

H := _output/tools/holdfast $(if $(BASE),--base $(BASE))
L := _output/tools/lab
MODFLAG := $(if $(OFFLINE),-mod=vendor,-mod=readonly)

.PHONY: all help test-parts test-labs test-all-parts test-all-labs tool tools kube-apiserver kubectl-holdfast endpoints-rules source vendor test test-all check reproducible install-test-packages upstream-tests upstream-tests-touched integration conformance fuzz minus-one \
	hash-oracle static-pod-oracle flags dropin differences security vulncheck site measure-build labs lab sweep binaries up down patches-check patches-extract patches-normalise discard-edits release release-tool release-check clean

all: tool kubectl-holdfast ## build the drop-in binaries and kubectl-holdfast (the default); MINUS=fix omits one
	@$(H) build $(if $(OFFLINE),--offline) $(if $(MINUS),--minus $(MINUS))

help: ## show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-23s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Settings: BASE=v1.2.0 OFFLINE=1 LAB=name PROFILE=long SEED=7 SEEDS=5 PATCH=file MINUS=fix SUITE=names N=number DB=FOLDER|URL STOCK=FOLDER SUMS=FILE OUT=FOLDER KEYS=FOLDER SNAPSHOT=1"

kube-apiserver: tool ## build the optional drop-in kube-apiserver, which make leaves out (patches/patch-errors/README.md); MINUS=fix
	@$(H) build $(if $(MINUS),--minus $(MINUS)) kube-apiserver

kubectl-holdfast: tool ## build the operators' program, _output/bin/kubectl-holdfast; needs no upstream source
	@version=$$(_output/tools/holdfast version) && hack/build-tool.sh cmd ./kubectl-holdfast _output/bin/kubectl-holdfast $(MODFLAG) -ldflags=-X=main.version=$$version

endpoints-rules: tool ## build the webhook for Endpoints, _output/bin/endpoints-rules; needs no upstream source
	@version=$$(_output/tools/holdfast version) && hack/build-tool.sh webhook ./endpoints-rules _output/bin/endpoints-rules $(MODFLAG) -ldflags=-X=main.version=$$version

tool: ## build the build command, _output/tools/holdfast
	@hack/build-tool.sh tools ./cmd/holdfast _output/tools/holdfast $(MODFLAG)

tools: tool ## build that and the command that runs the labs, _output/tools/lab
	@hack/build-tool.sh tools ./cmd/lab _output/tools/lab $(MODFLAG)

binaries: tools ## build every binary that the labs run: stock and ours, also of old releases
	@$(L) build --all

source: tool ## write both source trees of BASE below _output/src
	@$(H) source --variant ours && $(H) source --variant stock

vendor: tool ## write the folders from which OFFLINE=1 builds: vendor/ (or bases/BASE/vendor), tools/vendor, cmd/vendor
	@$(H) vendor

test: tools kubectl-holdfast endpoints-rules ## run what CI runs, whole every time: rules, unit tests, upstream's tests of touched packages, a short set of labs
	@hack/install-test-packages.sh release
	@$(L) build
	@$(MAKE) --no-print-directory --keep-going --jobs=2 test-parts test-labs

# Side by side: labs wait most of their time, and what compiles beside them gives way.
test-parts: tool ## the half of make test that compiles
	@nice -n 19 $(H) test
test-labs: tools ## the half that runs labs, of what lab build has built
	@$(L) suite

test-all: tools kubectl-holdfast endpoints-rules ## also run every lab in every variant, integration suites, hash oracle, flags; writes tools/labs/outcomes.json (long)
	@hack/install-test-packages.sh integration
	@$(L) build --all
	@$(MAKE) --no-print-directory --keep-going --jobs=2 test-all-parts test-all-labs
	@$(MAKE) --no-print-directory security

test-all-parts: tool ## the half of make test-all that compiles
	@nice -n 19 $(H) test --all
test-all-labs: tools ## the half that runs all labs
	@$(L) all

check: tools install-test-packages source ## run the repository's rules and our own unit tests only
	@$(H) test --part rules,tools,unit,operators,webhook,release

reproducible: all install-test-packages ## build from empty caches in two folders, and without a network; compare the sums (long, root)
	@cd tools && HOLDFAST_REPRODUCIBLE=long go test -count=1 -v -timeout=3h ./verify/reproducible

install-test-packages: ## install the Debian packages that the rules and unit tests need (root)
	@hack/install-test-packages.sh

upstream-tests: tool ## run upstream's tests of everything the binaries link, stock against ours (long)
	@$(H) upstream-tests --set all

upstream-tests-touched: tool ## run upstream's tests of the packages that overlay or patches touch
	@$(H) upstream-tests --set touched

integration: tool ## run upstream's integration suites with a real etcd, stock against ours (long); SUITE=deployment,pods: some
	@hack/install-test-packages.sh integration
	@$(H) upstream-tests --set integration $(if $(SUITE),--suite $(SUITE))

conformance: PROFILE = long
conformance: tools ## run upstream's conformance specs, stock against ours, across a swap, and its node suite (long, root); PROFILE=short: those next to what we patch
	@$(L) conformance conformance-swap conformance-node --profile $(PROFILE) --seed $(SEED)

fuzz: tool ## feed a million made-up inputs to each reader of the security fixes: repositories, SPDY frames, probe bodies, mount options, … (long)
	@$(H) source --variant ours && HOLDFAST_EXHAUSTIVE=1 CGO_ENABLED=0 go test -p=1 -trimpath -vet=off -count=1 -v -timeout=2h -run 'Fuzz$$' $(FUZZED)

minus-one: tool ## build the product without each fix in turn (long)
	@$(H) minus-one --how build $(MINUS)

hash-oracle: tool kubectl-holdfast ## compare our container hashes with the code of 1.6 to 1.9, on N=10000000 random containers
	@cd tools && go run ./cmd/container-hash-oracle -n $(or $(N),100000)

static-pod-oracle: source ## compare the UIDs of static pods with the code of 1.7 to 1.9, on N=10000000 random manifests
	@for b in v1.7.0 v1.8.15; do _output/tools/holdfast --base $$b source --variant stock; done
	@cd tools && go run ./cmd/static-pod-oracle -golden && go run ./cmd/static-pod-oracle -n $(or $(N),100000)

flags: tool ## write the table of the releases' flags and its page (bases/flags, docs/user/flags-1.7-to-1.9.md, cmd/internal/kubeletflags)
	@$(H) flags

dropin: tool ## compare the command lines of stock and ours; STOCK=FOLDER SUMS=FILE with upstream's own binaries
	@$(H) dropin $(if $(STOCK),--stock $(STOCK)) $(if $(SUMS),--sums $(SUMS))

differences: tool ## write docs/design/differences.md from the fixes
	@$(H) dropin page

security: ## write docs/security.md and _output/vex*.json from the fixes and bases/*/vulnerabilities.json
	@hack/build-tool.sh tools ./cmd/security _output/tools/security $(MODFLAG)
	@_output/tools/security write

vulncheck: $(if $(DB),all) ## run govulncheck on both binaries with the database DB=FOLDER|URL; fails on what docs/security.md does not explain
	@hack/build-tool.sh tools ./cmd/security _output/tools/security $(MODFLAG)
	@_output/tools/security vulncheck $(if $(DB),$(DB) $(BASE))

site: ## make a website of the pages in _output/site/html and check its links; needs Debian's mkdocs-material
	@hack/build-tool.sh tools ./cmd/site _output/tools/site $(MODFLAG)
	@_output/tools/site

measure-build: ## measure time and memory of builds, for docs/design/build.md; COLD=1 with an empty build cache
	@cd tools && go run ./cmd/measure-build $(if $(COLD),-cold)

labs: tools kubectl-holdfast endpoints-rules ## run all labs in PROFILE
	@$(L) --all --profile $(PROFILE) --seed $(SEED)

lab: tools kubectl-holdfast endpoints-rules ## run one lab: make lab LAB=cluster-smoke PROFILE=long
	@$(L) $(LAB) --profile $(PROFILE) --seed $(SEED)

sweep: tools kubectl-holdfast endpoints-rules ## run labs while a component is killed at a random point: never a wrong verdict (LAB=name SEEDS=5; long)
	@$(L) sweep $(LAB) --profile $(PROFILE) $(if $(SEEDS),--seeds $(SEEDS))

up: tools ## start a cluster of our binaries to try things on; prints its kubeconfig
	@$(L) up

down: tools ## stop that cluster
	@$(L) down

patches-check: tool ## check names, trailers and normal form of the patches
	@$(H) patches check

patches-extract: tool ## carry edits in _output/src/BASE/ours back into overlay and patches
	@$(H) patches extract $(if $(PATCH),--patch $(PATCH))

patches-normalise: tool ## rewrite patches in normal form
	@$(H) patches normalise

discard-edits: tool ## discard edits in _output/src/BASE/ours
	@$(H) discard-edits

release: all security release-tool ## build a release in OUT=DIR; KEYS=DIR signs it, SNAPSHOT=1 builds a commit that is none (docs/design/release.md)
	@hack/install-test-packages.sh release
	@_output/tools/release build $(if $(BASE),--base $(BASE)) $(if $(SNAPSHOT),--snapshot) $(if $(KEYS),--keys $(KEYS)) $(OUT)

release-tool: tool ## build the command that makes and verifies releases, _output/tools/release
	@hack/build-tool.sh release . _output/tools/release $(MODFLAG)

release-check: tools ## build a snapshot of the real programs in two folders, compare, verify; install, refuse, kill, go back; the lab package-upgrade; needs what make builds (long, root)
	@hack/install-test-packages.sh release-check
	@$(MAKE) --no-print-directory release-tool security
	@$(MAKE) --no-print-directory BASE=v1.2.0
	@cd release && HOLDFAST_RELEASE=long CGO_ENABLED=0 go test -trimpath -count=1 -v -timeout=2h .

clean: ## remove everything generated but the vendor folders
	@rm -rf _output
