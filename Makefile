# Everything here works on a fresh Debian 12 machine that has Go, git and make,
# as root or as an ordinary user (others: see README.md). What the guests need is fetched
# once into ~/.cache/goverbs-bed (GOVERBS_BED_CACHE), verified by signature.

GO      ?= go
FUZZ    ?= 60s
ROUNDS  ?= 10000
MESSAGES ?= 100000
KILLS   ?= 200
BENCH   ?= 10
RERUN   ?= 1
TIMEOUT ?= 60m
DURATION ?= 15m
FIGURES ?= $(if $(SERVER),bin/hosts.json,bench/figures/go-and-c.json)
PAGE    ?= $(if $(SERVER),bin/hosts.md,docs/go-and-c.md)

export CGO_ENABLED = 0

# Packages that use unsafe are tested once more with pointer checks, of our own code. bench/cgo and testbed are modules of
# their own: the latter uses unsafe only in a program for guests, which has no tests.
UNSAFE   = $(sort $(patsubst %/,./%,$(dir $(shell git ls-files '*_unsafe.go' ':!bench/cgo' ':!testbed'))))
BENCHES  = $(sort $(patsubst %/,./%,$(dir $(shell git grep -l '^func Benchmark' -- '*_test.go' ':!bench/cgo' ':!testbed'))))
BEDBENCH = $(sort $(patsubst testbed/%/,./%,$(dir $(shell git grep -l '^func Benchmark' -- 'testbed/*_test.go'))))
MODULE   = github.com/goverbs/goverbs

# Many hermetic tests wait for timeouts more than they compute.
HERMETIC = -vet=off -p 4

# For arm64 vet compiles everything, and compares assembly with declarations: other analyses of the same files have the
# same results. dist compiles with -trimpath, too, and finds the packages in the cache.
ARM64    = -trimpath -asmdecl

# Packages whose guests take longest come first, so that none of them is left alone at the end.
LONG     = $(patsubst %,./%,kernels connectx/judge interop faults differential perftest parity vm)

.DEFAULT_GOAL := help
.PHONY: help demo check test test-all soak bench parity generate hardware api duplicates lint race chaos dist fuzz vuln notes site

help: ## print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: ## watch two Go processes do RDMA over a real kernel driver, in an emulator
	@$(GO) run -C testbed ./demo

check: ## the hermetic tests: no device, no guest, no network beyond the Go modules
	@bad="$$(gofmt -l $$(git ls-files '*.go'))"; if [ -n "$$bad" ]; then echo "gofmt would change: $$bad"; exit 1; fi
	for m in . testbed; do \
		$(GO) vet -C $$m -tags device,vm,soak,speed ./... && \
		GOARCH=arm64 $(GO) vet -C $$m $(ARM64) -tags device,vm,soak,speed ./... && \
		$(GO) test -C $$m $(HERMETIC) ./... || exit 1; \
	done
	$(GO) vet -C testbed -tags vm,soak,speed ./valkey # files without the tag device
	$(GO) test -vet=off -gcflags=$(MODULE)/...=-d=checkptr $(UNSAFE)
	$(GO) test -vet=off -run='^$$' -bench=. -benchtime=1x $(BENCHES)
	$(GO) test -C testbed -vet=off -run='^$$' -bench=. -benchtime=1x $(BEDBENCH)
	$(GO) vet -C examples/grpc -tags soak ./...
	$(GO) test -C examples/grpc -vet=off ./...
	$(GO) vet -C bench/grpc ./...
	$(GO) test -C bench/grpc -vet=off ./...
	$(GO) vet -C observe ./...
	$(GO) test -C observe -vet=off ./...
	$(GO) vet -C testbed/gvisor -tags vm ./...
	$(GO) vet -C valkeyrdma ./...
	$(GO) test -C valkeyrdma $(HERMETIC) ./...
	$(GO) vet -C s3rdma -tags soak,device ./...
	$(GO) test -C s3rdma $(HERMETIC) ./...
	$(GO) vet -C dist ./...
	$(GO) test -C dist -vet=off ./...
	$(GO) vet -C tools ./...
	$(GO) test -C tools -vet=off -count=1 ./... # they read files of other modules, which the cache does not see
	@$(MAKE) --no-print-directory api duplicates
	@if echo '#include <rdma/rdma_verbs.h>' | gcc -fsyntax-only -xc - 2>/dev/null; then \
		echo "CGO_ENABLED=1 $(GO) vet, build -C bench/cgo"; \
		CGO_ENABLED=1 $(GO) vet -C bench/cgo ./... && CGO_ENABLED=1 $(GO) build -C bench/cgo -buildvcs=false ./...; \
	else echo "bench/cgo is not built: apt-get install gcc libc6-dev librdmacm-dev"; fi

test: ## check, and the tests on real kernels: what CI runs
	@$(MAKE) --no-print-directory -j2 check bed
	$(GO) test -C internal/uapi/gen ./...
	$(GO) build -C tools -o "$(CURDIR)/bin/gotestsum" gotest.tools/gotestsum
	cd testbed && PATH="$$(dirname "$$(command -v $(GO))"):$$PATH" ../bin/gotestsum --format standard-quiet --hide-summary=skipped \
		--rerun-fails=$(RERUN) --rerun-fails-max-failures=20 --packages="$(LONG) ./..." -- \
		-tags vm -count=1 -vet=off -p 3 -timeout $(TIMEOUT)

test-all: ## test, and its repeats on further kernels and link layers; no test runs twice
	GOVERBS_TEST=all KV_SCHEDULES=10000 RERUN=0 TIMEOUT=80m $(MAKE) --no-print-directory test
	$(GO) test -C testbed/gvisor -tags vm -count=1 -vet=off -timeout $(TIMEOUT) ./...

.PHONY: bed
bed: # downloads, while check computes
	$(GO) run -C testbed ./vm/cmd/vm -setup

soak: ## the long versions: loops, faults and fuzzers; ROUNDS=10000 MESSAGES=100000 KILLS=200 FUZZ=60s
	$(GO) test -C testbed -tags vm,soak -count=1 -p 1 -timeout 1h ./vm
	GOVERBS_SOAK_ROUNDS=$(ROUNDS) $(GO) test -C testbed -tags vm,soak -count=1 -timeout 3h -v -run=TestSoak ./kernels
	GOVERBS_SOAK_MESSAGES=$(MESSAGES) GOVERBS_SOAK_KILLS=$(KILLS) $(GO) test -C testbed -tags vm,soak -count=1 -timeout 6h -v -run=TestSoak ./faults
	$(GO) test -C testbed -tags vm,soak -count=1 -timeout 8h -v -run=TestSoak ./connectx/judge
	$(GO) test -C testbed -tags vm,soak -count=1 -timeout 1h -v -run=TestSoak ./connectx/rxe
	$(GO) test -C testbed -tags vm,soak -count=1 -timeout 1h -v -run=TestSoak ./hardware
	$(GO) test -C testbed -tags vm,soak -count=1 -timeout 1h -v -run=TestSoak ./bench
	$(GO) test -C testbed -tags vm,soak -count=1 -timeout 1h -v -run=TestSoak ./valkey
	$(GO) test -C s3rdma -tags soak -count=1 -timeout 1h -v -run=TestSoak ./...
	$(GO) test -C examples/grpc -tags soak -count=1 -timeout 1h -v -run=TestSoak ./...
	KV_SCHEDULES=10000 $(GO) test -count=1 -timeout 1h ./examples/kv
	@$(MAKE) --no-print-directory fuzz

fuzz: ## every fuzzer for a while: FUZZ=60s
	GO=$(GO) tools/fuzz.sh $(FUZZ)

bench: ## Go beside C, measured in guests: docs/go-and-c.md; BENCH=rounds. Two hosts: SERVER=root@a CLIENT=root@b ADDRESS=10.0.0.1 DEVICE=mlx5_0 (docs/hardware.md)
	$(GO) run -C testbed ./bench $(if $(SERVER),-server $(SERVER) -client $(CLIENT) -address $(ADDRESS) -device $(or $(DEVICE),mlx5_0) -args "$(ARGS)" $(HOSTS)) -o "$(abspath $(FIGURES))" -rounds $(BENCH); \
	status=$$?; if [ -e "$(FIGURES)" ]; then $(GO) run ./bench/report "$(FIGURES)" "$(PAGE)" || exit 1; fi; exit $$status

parity: ## run rdma-core's tests and ours on each kernel, and write docs/evidence/parity.md
	$(GO) run -C testbed ./parity -write

generate: ## write generated code anew
	$(GO) run -C testbed ./vm/cmd/vm -setup headers
	$(GO) generate ./...

hardware: bin/hardware ## the device tests and benchmarks on a device: DEVICE=mlx5_0 ADDRESS=192.168.0.7 (docs/hardware.md)
	bin/hardware/hardware -device "$(DEVICE)" $(if $(ADDRESS),-address $(ADDRESS))

.PHONY: bin/hardware
bin/hardware: # a folder to copy to the machine with the device
	$(GO) run -C testbed ./hardware -build "$(CURDIR)/bin/hardware"

dist: ## static archives, an OCI image and checksums, in bin/dist: VERSION=v0 (docs/deploy.md)
	$(GO) run -C dist . -o "$(CURDIR)/bin/dist" $(if $(VERSION),-version "$(VERSION)")

site: ## the documentation as a static site, in bin/site
	$(GO) run -C tools ./site -o "$(CURDIR)/bin/site" "$(CURDIR)"

notes: ## the section of the changelog for the page of a release, in bin/notes.md: VERSION=v0.1.0
	@mkdir -p bin
	$(GO) run -C tools ./notes ../CHANGELOG.md "$(VERSION)" >bin/notes.md

api: ## compare the API with that of the last release (docs/support.md)
	@$(GO) build -C tools -o "$(CURDIR)/bin/apicheck" ./apicheck
	bin/apicheck . tools/apicheck/accepted.txt

duplicates: ## find code that is written twice
	@$(GO) build -C tools -o "$(CURDIR)/bin/dupl" github.com/mibk/dupl
	sh tools/duplicates.sh bin/dupl

vuln: ## look for known vulnerabilities in what the library and its programs use
	@$(GO) build -C tools -o "$(CURDIR)/bin/govulncheck" golang.org/x/vuln/cmd/govulncheck
	bin/govulncheck ./...

lint: ## vet and staticcheck
	$(GO) vet ./...
	$(GO) vet -C testbed ./...
	$(GO) build -C tools -o "$(CURDIR)/bin/staticcheck" honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck -tags device,vm,soak ./...
	cd testbed && ../bin/staticcheck -tags device,vm,soak ./...

race: ## the hermetic tests under the race detector; needs gcc
	@command -v gcc >/dev/null || { echo "the race detector needs gcc: apt-get install gcc libc6-dev"; exit 1; }
	CGO_ENABLED=1 $(GO) test -race ./...
	CGO_ENABLED=1 $(GO) test -C testbed -race ./...
	CGO_ENABLED=1 $(GO) test -C examples/grpc -race ./...
	CGO_ENABLED=1 $(GO) test -C bench/grpc -race ./...
	CGO_ENABLED=1 $(GO) test -C observe -race ./...
	CGO_ENABLED=1 $(GO) test -C valkeyrdma -race ./...
	CGO_ENABLED=1 $(GO) test -C s3rdma -race ./...

chaos: ## the tests of races, again and again under the race detector: DURATION=15m; needs gcc
	@command -v gcc >/dev/null || { echo "the race detector needs gcc: apt-get install gcc libc6-dev"; exit 1; }
	GO=$(GO) tools/chaos.sh $(DURATION)
