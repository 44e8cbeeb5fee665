# What people type. CI runs .ci/run, which says more.
GO ?= go

.PHONY: build build-cuda cuda-headers check-cuda test race generate demo lint golden check
build:      ## bin/serve, one static binary
	CGO_ENABLED=0 $(GO) build -o bin/serve ./cmd/serve
build-cuda: ## bin/serve-cuda, which uses NVIDIA's driver where there is one
	CGO_CFLAGS="-I$$(scripts/cuda-headers.sh build/cuda | tail -1)" $(GO) build -tags cuda -o bin/serve-cuda ./cmd/serve
cuda-headers: ## NVIDIA's headers for build tag cuda
	scripts/cuda-headers.sh build/cuda
check-cuda: ## the code for GPUs on a simulated driver (needs clang-19)
	scripts/check-cuda.sh build/cuda
test:       ## everything a fresh machine can run
	$(GO) test ./...
race:       ## the concurrent packages under the race detector
	$(GO) test -race ./internal/engine ./internal/residency ./internal/backend/... ./internal/kvcache ./dispatch/... ./api/...
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
