# What people type. CI runs .ci/run, which says more.
GO ?= go

.PHONY: build test race generate demo lint golden check
build:      ## bin/serve, one static binary
	CGO_ENABLED=0 $(GO) build -o bin/serve ./cmd/serve
test:       ## everything a fresh machine can run
	$(GO) test ./...
race:       ## the concurrent packages under the race detector
	$(GO) test -race ./internal/engine ./internal/residency ./internal/backend/... ./internal/kvcache ./dispatch ./api/...
golden:     ## the reference fixtures, with counts
	$(GO) test ./... -run Golden -v | grep -E '^golden|^---|FAIL'
generate:   ## generated files: kernels (needs clang-19, lld-19), the demo's vocabulary, tables
	$(GO) generate ./...
demo:       ## train the embedded demo model on the texts beside its generator
	$(GO) run ./internal/demo/generate -o loader/demo/model -train
lint:
	gofmt -l . && $(GO) vet ./... && staticcheck ./...
check:      ## what CI runs
	.ci/run
