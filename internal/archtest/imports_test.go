package archtest

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/heftai/heft"

// allowed are the edges between our packages, as ARCHITECTURE.md explains them; a
// package that is not named here may not exist. "X/..." stands for X and the packages below it.
// A new edge is a design change: it comes with its reason here and there.
var allowed = map[string][]string{
	"meta":               {"internal/smallfile", "internal/spelling"},
	"internal/filehash":  {},                    // hashes of files
	"internal/smallfile": {},                    // configs and tokenizers, read with a limit
	"internal/jsonscan":  {},                    // JSON text in place: headers, tokenizers, requests
	"internal/hostmem":   {"internal/topology"}, // limits of the process that its errors name

	// The families of kernels: operands, variants and arguments of assembly below, then one package a family.
	"internal/kernels/mat":             {"internal/floats"},
	"internal/kernels/isa":             {},
	"internal/kernels/asm":             {},
	"internal/kernels/vector":          {"internal/kernels/asm", "internal/kernels/isa", "internal/kernels/mat"},
	"internal/kernels/gemv":            {"internal/kernels/asm", "internal/kernels/fetch", "internal/kernels/isa", "internal/kernels/mat"},
	"internal/kernels/coded":           {"internal/kernels/asm", "internal/kernels/fetch", "internal/kernels/isa", "internal/kernels/mat"},
	"internal/kernels/gemm":            {"internal/kernels/asm", "internal/kernels/fetch", "internal/kernels/isa", "internal/kernels/mat", "internal/kernels/vector"},
	"internal/kernels/quant":           {"internal/floats", "internal/jsonscan", "internal/kernels/asm", "internal/kernels/fetch", "internal/kernels/isa", "internal/kernels/mat", "internal/kernels/vector"},
	"internal/kernels/qgemm":           {"internal/floats", "internal/kernels/asm", "internal/kernels/fetch", "internal/kernels/gemm", "internal/kernels/gemv", "internal/kernels/isa", "internal/kernels/mat", "internal/kernels/quant", "internal/kernels/vector"},
	"internal/kernels/attention":       {"internal/kernels/asm", "internal/kernels/fetch", "internal/kernels/gemm", "internal/kernels/isa", "internal/kernels/mat", "internal/kernels/quant"},
	"internal/kernels/grad":            {"internal/kernels/asm", "internal/kernels/isa", "internal/kernels/vector"},
	"internal/kernels/optimizer":       {"internal/kernels/asm", "internal/kernels/isa"},
	"internal/kernels/sampling":        {"internal/kernels/asm", "internal/kernels/isa"},
	"internal/kernels/roof":            {"internal/kernels/fetch", "internal/kernels/isa"},
	"internal/kernels/fetch":           {},
	"internal/kernels/fetch/fetchtest": {"internal/kernels/fetch"},                                                                                                                                                                                                                                                                                                   // runs the tests of kernels with several plans
	"internal/kernels/kerneltest":      {"internal/kernels/gemv", "internal/kernels", "internal/kernels/gemm", "internal/kernels/isa", "internal/kernels/mat", "internal/kernels/quant", "internal/kernels/roof"},                                                                                                                                                    // for tests
	"internal/kernels/tune":            {"internal/kernels/coded", "internal/kernels/gemm", "internal/kernels/gemv", "internal/atomicfile", "internal/hostmem", "internal/kernels", "internal/kernels/attention", "internal/kernels/fetch", "internal/kernels/isa", "internal/kernels/mat", "internal/kernels/quant", "internal/kernels/roof", "internal/smallfile"}, // measures the kernels on memory of its own and keeps the result in a file
	"internal/kernels/matmul":          {"internal/kernels", "internal/kernels/gemm", "internal/kernels/mat"},
	"internal/kernels": {"internal/kernels/attention", "internal/kernels/coded", "internal/kernels/gemm", "internal/kernels/gemv", "internal/kernels/grad", "internal/kernels/isa", "internal/kernels/optimizer",
		"internal/kernels/qgemm", "internal/kernels/quant", "internal/kernels/sampling", "internal/kernels/vector"},

	"internal/topology":            {},
	"internal/pressure":            {},                                                                                                                                                               // decides from readings that it is given
	"internal/probe":               {"meta", "internal/backend", "internal/backend/cpu", "internal/tensor", "internal/kernels/...", "internal/hostmem", "internal/atomicfile", "internal/smallfile"}, // backend: products of prompts; files: the rate of a disk is kept
	"internal/tokenizer":           {"internal/jsonscan", "internal/smallfile", "internal/hostmem"},                                                                                                  // hostmem: a large tokenizer.json, while it is parsed
	"internal/chat":                {"internal/chat/jinja", "internal/smallfile"},
	"internal/chat/jinja":          {"internal/jsonscan"},
	"internal/layout":              {}, // how models write arguments that are not JSON
	"internal/chat/toolcall":       {"internal/chat", "internal/jsonscan", "internal/layout"},
	"internal/grammar/dfa":         {},                                                 // automata over bytes
	"internal/grammar/vocab":       {},                                                 // tokens as a trie
	"internal/grammar/grammartest": {},                                                 // for tests
	"internal/grammar/chars":       {"internal/grammar/dfa", "internal/grammar/vocab"}, // languages over characters
	"internal/grammar":             {"internal/grammar/chars", "internal/grammar/dfa", "internal/grammar/vocab"},
	"internal/grammar/jsontext":    {"internal/grammar/dfa"},
	"internal/grammar/regex":       {"internal/grammar", "internal/grammar/chars", "internal/grammar/dfa"},
	"internal/grammar/lark":        {"internal/grammar", "internal/grammar/dfa", "internal/grammar/regex"},
	"internal/grammar/gbnf":        {"internal/grammar", "internal/grammar/dfa"},
	"internal/grammar/jsonschema":  {"internal/grammar", "internal/grammar/chars", "internal/grammar/dfa", "internal/grammar/jsontext", "internal/grammar/regex", "internal/jsonscan", "internal/layout"},
	"text":                         {"internal/hubcache", "internal/tokenizer", "internal/chat", "internal/chat/toolcall", "internal/layout"},
	"internal/sample":              {"internal/kernels/..."}, // apart from the engine, so that dispatch.Generate chooses tokens by the same code
	"devicemap":                    {"meta", "internal/spelling"},
	"internal/spelling":            {},
	"internal/errtext":             {},
	"internal/backlog":             {}, // connections whose request has not arrived
	"internal/logbuffer":           {}, // a log that does not block its program
	"internal/inuse":               {}, // which engine uses a model: closing the model ends it first
	"internal/filelock":            {},
	"internal/repl":                {"internal/atomicfile", "internal/smallfile"}, // a chat in the terminal; a client of HTTP alone
	"internal/atomicfile":          {"internal/filelock"},                         // writers lock their temporary files
	"internal/gguf":                {},                                            // the header of a file
	"internal/gguf/gguftest":       {"internal/atomicfile", "internal/gguf"},
	"internal/gguf/folder":         {"meta", "internal/gguf"}, // meta: what conventions its tensors have
	"loader":                       {"meta", "internal/gguf", "internal/gguf/folder", "internal/hostmem", "internal/atomicfile", "internal/hubcache", "internal/jsonscan", "internal/smallfile", "internal/floats"},
	"internal/floats":              {}, // scalars of short formats
	"internal/tensor":              {"meta", "internal/floats"},
	"internal/backend":             {"meta", "internal/tensor"},                                                                                      // meta: the specs of norms and routers are the operations' arguments
	"internal/backend/cpu":         {"meta", "internal/backend", "internal/tensor", "internal/kernels/...", "internal/hostmem", "internal/topology"}, // topology: threads keep to their processors
	"internal/backend/backendtest": {"meta", "internal/backend", "internal/tensor", "internal/kernels/...", "internal/golden"},
	"internal/backend/cuda":        {"meta", "internal/backend", "internal/tensor", "internal/hostmem", "internal/backend/cuda/driver"}, // a GPU; build tag cuda
	"internal/backend/cuda/driver": {},                                                                                                  // NVIDIA's driver, bound while the program runs
	"internal/backend/record":      {"meta", "internal/backend", "internal/tensor"},
	"internal/stored":              {"meta", "loader", "internal/backend", "internal/tensor"},
	"internal/kvcache":             {"meta", "internal/backend", "internal/kvstore", "internal/tensor"}, // kvstore: pages outlive the process
	"internal/kvstore":             {"internal/atomicfile", "internal/filelock"},                        // values of opaque keys in a folder
	"internal/lora":                {"meta", "loader", "internal/tensor", "internal/atomicfile", "internal/smallfile"},
	"internal/nn":                  {"meta", "internal/backend", "internal/tensor", "internal/kvcache", "internal/lora"},
	"internal/residency/policy":    {},                                                                                                                                                                                      // pure: which experts stay in memory
	"internal/residency":           {"internal/residency/policy", "meta", "devicemap", "loader", "internal/backend", "internal/tensor", "internal/hostmem", "internal/stored", "internal/atomicfile", "internal/smallfile"}, // backend: a backend's Converter converts weights when they are loaded; smallfile: sizes that an earlier start recorded
	"internal/deviceweights":       {"meta", "loader", "internal/backend", "internal/tensor", "internal/hostmem", "internal/stored"},
	"dispatch": {"dispatch/internal/gpus", "dispatch/internal/testhooks", "dispatch/internal/cost", "dispatch/internal/placement", "meta", "devicemap", "loader", "internal/lora", "internal/nn", "internal/backend", "internal/backend/cpu", "internal/tensor", "internal/deviceweights", "internal/stored",
		"internal/kvcache", "internal/kvstore", "internal/residency", "internal/residency/policy", "internal/atomicfile", "internal/smallfile", "internal/hostmem", "internal/sample", "internal/probe", "internal/kernels/tune", "internal/topology", "internal/pressure", "internal/inuse"}, // tune: how weights are read fastest here; topology: how many threads, and whose memory weights are put in; pressure: limits that change while it runs; stored: DoRA measures weights in the checkpoint
	"dispatch/internal/cost": {"devicemap", "meta", "internal/kvcache", "internal/nn"},                                                                                         // what passes cost, from measured rates
	"dispatch/internal/gpus": {"dispatch/internal/testhooks", "devicemap", "meta", "internal/backend", "internal/backend/cuda", "internal/backend/cuda/driver", "internal/nn"}, // inside: the simulated GPUs of tests
	"dispatch/internal/placement": {"dispatch/internal/gpus", "dispatch/internal/testhooks", "devicemap", "loader", "meta", "internal/atomicfile", "internal/backend", "internal/backend/cpu", "internal/deviceweights", "internal/hostmem", "internal/kernels/tune", "internal/kvcache", "internal/lora", "internal/nn", "internal/probe",
		"internal/residency", "internal/residency/policy", "internal/smallfile", "internal/tensor", "internal/topology"}, // sizes come from the packages that take the memory; probe, tune: speeds of this machine, which plans compare
	"dispatch/internal/testhooks":    {"devicemap", "internal/backend", "internal/kvcache", "internal/kvstore", "internal/residency", "internal/residency/policy", "internal/topology"}, // settings of tests
	"dispatch/internal/dispatchtest": {"devicemap", "dispatch", "dispatch/internal/testhooks", "loader", "loader/demo", "meta", "internal/..."},                                         // places, runs and compares models, for tests

	// Tests of dispatch, by subject.
	"dispatch/internal/test/activations": {},
	"dispatch/internal/test/adapter":     {},
	"dispatch/internal/test/compress":    {},
	"dispatch/internal/test/convert":     {},
	"dispatch/internal/test/disk":        {},
	"dispatch/internal/test/files":       {},
	"dispatch/internal/test/gguf":        {},
	"dispatch/internal/test/gpu":         {},
	"dispatch/internal/test/kv":          {},
	"dispatch/internal/test/limit":       {},
	"dispatch/internal/test/model":       {},
	"dispatch/internal/test/placement":   {},
	"dispatch/internal/test/plan":        {},
	"dispatch/internal/test/routing":     {},

	"internal/draft":             {}, // guesses of tokens, and how many of them to verify
	"internal/engine":            {"dispatch", "internal/draft", "internal/sample"},
	"internal/engine/enginetest": {"internal/engine"},                          // a model without weights, for tests
	"internal/engine/holder":     {"internal/engine"},                          // reaches the engine in a public model, for metrics and tests
	"api/internal/schema":        {},                                           // JSON Schemas of Go types, for /openapi.json
	"api/internal/reload":        {},                                           // files that are read again when they change
	"api/wire":                   {"internal/jsonscan", "api/internal/schema"}, // what all HTTP dialects share
	"api/generate": {"api/wire", "meta", "dispatch", "text", "internal/engine", "internal/engine/holder", "internal/inuse", "internal/sample",
		"internal/grammar/...", "internal/jsonscan", "internal/layout", "internal/smallfile"}, // constrained decoding; escapes of texts; tokenizer_config.json
	"internal/generatetest":       {"api/generate", "devicemap", "dispatch", "loader", "meta", "text", "loader/demo", "internal/engine", "internal/engine/enginetest", "internal/engine/holder"},                                   // models for tests
	"api/internal/foreign":        {"api/wire"},                                                                                                                                                                                    // fields of other servers, for all dialects
	"api/internal/settings":       {"api/wire", "api/generate", "text", "internal/chat"},                                                                                                                                           // settings that dialects read under the same names
	"api/internal/openaijson":     {"api/wire", "api/internal/schema", "api/generate"},                                                                                                                                             // what OpenAI's endpoints share
	"api/openai":                  {"api/generate", "api/internal/foreign", "api/internal/openaijson", "api/internal/schema", "api/internal/settings", "api/wire", "internal/chat", "internal/lora", "internal/smallfile", "text"}, // lora: whether a folder that a client names has an adapter
	"api/store":                   {"internal/atomicfile"},                                                                                                                                                                         // what requests leave behind, in memory or on disk
	"api/batches":                 {"api/wire", "api/internal/openaijson", "api/store", "internal/atomicfile", "internal/filelock"},
	"api/responses":               {"api/wire", "api/generate", "api/internal/foreign", "api/internal/openaijson", "api/internal/settings", "api/store", "text"},
	"api/messages":                {"api/wire", "api/generate", "api/internal/foreign", "api/internal/settings", "text"},
	"api/ollama":                  {"api/wire", "api/generate", "api/internal/settings", "meta", "text"}, // meta: what lists show of a model
	"api/keys":                    {"api/wire", "api/internal/reload", "internal/smallfile"},
	"api":                         {"api/wire", "api/internal/reload", "api/internal/schema", "api/batches", "api/generate", "api/keys", "api/messages", "api/ollama", "api/openai", "api/responses", "api/store", "devicemap", "dispatch", "internal/backlog", "internal/engine", "internal/engine/holder", "internal/smallfile", "internal/spelling", "internal/topology"}, // smallfile: certificates; spelling: misspelled paths; topology: how many files may be open
	"cmd/serve":                   {"*"},
	"cmd/train":                   {"*"},
	"internal/cmdline":            {"internal/errtext", "internal/spelling"},                                                                                                         // shared code of the commands
	"internal/cmdline/doctest":    {"internal/golden"},                                                                                                                               // for tests of the commands
	"loader/demo":                 {},                                                                                                                                                // the embedded demo model's bytes
	"internal/demo/generate":      {"internal/atomicfile", "meta", "loader", "internal/tokenizer", "train", "train/data", "train/model", "train/optim", "train/rng", "train/tensor"}, // its trainer
	"internal/hub":                {"internal/atomicfile", "internal/filelock", "internal/gguf", "internal/hubcache"},                                                                // gguf: which names can be those of models
	"internal/hubcache":           {"internal/smallfile"},                                                                                                                            // apart from hub, which knows HTTP: loader and text open ORG/NAME
	"internal/collective":         {},
	"internal/collective/mpi":     {"internal/collective"},
	"internal/collective/tcp":     {"internal/collective"},
	"train/rng":                   {}, // apart from data: tensors start their weights and drop by it too
	"train/data":                  {"train/rng", "text"},
	"train/optim":                 {"internal/floats", "internal/kernels/..."},
	"train/tensor":                {"internal/backend", "internal/backend/cpu", "internal/floats", "internal/tensor", "meta", "internal/kernels"}, // backend: operations of layers and their gradients; meta: dtypes of stored parameters
	"train/tensor/tensortest":     {"internal/floats", "meta"},                                                                                    // storages for tests
	"train/track":                 {"internal/atomicfile"},
	"train/model":                 {"meta", "loader", "devicemap", "internal/hostmem", "internal/residency", "internal/lora", "internal/nn", "internal/backend", "internal/backend/cpu", "internal/backend/record", "internal/kernels/...", "internal/kvcache", "internal/stored", "internal/tensor", "train/internal/chunks", "train/rng", "train/tensor"}, // kernels: weights are rounded for autocast
	"train/internal/accumulation": {"train/data"},
	"train/internal/checkpoint":   {"meta", "loader", "internal/atomicfile", "internal/smallfile", "train/optim", "train/tensor"}, // meta, loader: checkpoints are safetensors
	"train/internal/evaluation":   {"train/tensor"},
	"train/internal/preference":   {}, // losses over log-probabilities
	"train/internal/modelfiles":   {"meta", "loader", "internal/atomicfile", "internal/floats", "internal/smallfile", "train/internal/checkpoint", "train/tensor"},
	"train/internal/nested":       {"internal/collective", "train/tensor"},
	"train/internal/samples":      {"internal/atomicfile"}, // tokenised data in files
	"train/internal/chunks":       {"meta", "internal/residency", "internal/tensor", "train/tensor"},
	"train/internal/gemini":       {"train/internal/chunks", "train/internal/replicas", "train/internal/sharded", "train/optim", "train/tensor"},
	"train/internal/replicas":     {"meta", "internal/collective", "train/tensor"}, // meta: dtypes of storages
	"train/internal/sharded":      {"internal/collective", "train/internal/replicas", "train/optim", "train/tensor"},
	"train/internal/progress":     {"internal/smallfile", "train/internal/checkpoint", "train/internal/evaluation", "train/optim", "train/track"},
	"train/internal/rank":         {"internal/collective", "internal/errtext", "train/data", "train/internal/accumulation", "train/internal/replicas", "train/internal/sharded", "train/optim", "train/rng", "train/tensor"},
	"train/internal/runstate":     {"meta", "loader", "internal/collective", "internal/smallfile", "train/data", "train/internal/checkpoint", "train/internal/rank", "train/internal/replicas", "train/optim", "train/rng"}, // meta, loader: gradients are safetensors
	"train/internal/trainer": {"meta", "internal/collective", "internal/errtext", "train/data", "train/internal/evaluation", "train/internal/modelfiles", "train/internal/progress", "train/internal/rank",
		"train/internal/runstate", "train/optim", "train/tensor", "train/track"},
	"train": {"meta", "loader", "internal/atomicfile", "internal/errtext", "internal/filehash", "internal/collective", "internal/collective/mpi", "internal/collective/tcp", "internal/residency", "train/internal/chunks", "train/internal/gemini", "train/internal/replicas", "train/internal/sharded", "train/data", "train/optim", "train/rng", "train/tensor", "train/track",
		"train/internal/accumulation", "train/internal/checkpoint", "train/internal/evaluation", "train/internal/modelfiles", "train/internal/nested", "train/internal/preference", "train/internal/progress", "train/internal/rank",
		"train/internal/runstate", "train/internal/trainer"},
	"train/finetune": {"devicemap", "dispatch", "loader", "meta", "internal/atomicfile", "internal/spelling", "internal/engine", "internal/filehash", "internal/filelock", "internal/hostmem", "internal/kernels/tune", "internal/sample", "internal/smallfile",
		"train", "train/data", "train/internal/preference", "train/internal/samples", "train/model", "train/optim", "train/rng", "train/tensor", "train/track"}, // dispatch: the memory of the machine; hostmem: the room on its disk; engine, sample: completions that grpo learns from; tune: how weights are read fastest here
	"examples/accumulate": {"train", "train/data", "train/optim", "train/tensor"},
	"examples/serve":      {"api", "api/generate", "dispatch", "loader/demo"},
	"examples/stream":     {"api/generate", "devicemap", "dispatch", "loader/demo", "text"},
	"examples/plan":       {"devicemap", "dispatch", "meta"},
	"examples/hooks":      {"dispatch", "loader/demo"},
	"examples/structured": {"api/generate", "dispatch", "loader/demo", "text"},
	"examples/tools":      {"api", "api/generate", "dispatch", "loader/demo", "text"},
	"examples/generate":   {"api/generate", "dispatch", "loader/demo", "text"},
	"examples":            {}, // a test that runs the programs below
	"examples/causallm":   {"train", "train/data", "train/optim", "train/rng", "train/tensor"},
	"examples/evaluate":   {"train", "train/data", "train/rng", "train/tensor"},
	"examples/lora": {"api", "api/generate", "dispatch", "loader/demo", "loader", "text",
		"train", "train/data", "train/model", "train/optim", "train/rng", "train/tensor"}, // trains, then serves
	"examples/finetune":       {"loader/demo", "train/finetune"},
	"examples/resnet":         {"train", "train/data", "train/optim", "train/rng", "train/tensor"},
	"examples/trainstep":      {"train", "train/data", "train/optim", "train/rng", "train/tensor"},
	"scripts/supported":       {"devicemap", "dispatch", "internal/atomicfile", "internal/gguf/folder", "meta"}, // writes the tables of docs/models.md
	"scripts/benchtokenizers": {"internal/tokenizer"},
	"scripts/grammarbench":    {"internal/grammar", "internal/grammar/jsonschema", "internal/grammar/vocab", "text"}, // compared with llguidance
	"scripts/constrainbench":  {"api/generate", "dispatch", "internal/atomicfile", "internal/engine", "internal/engine/holder"},
	"scripts/draftbench":      {"devicemap", "dispatch", "internal/engine", "internal/sample", "internal/tokenizer", "loader", "meta"},
}

// homes are the only packages that may import a library.
var homes = map[string][]string{
	"github.com/go-chi/chi":             {"api"},
	"github.com/nlpodyssey/safetensors": {"loader"},
	"golang.org/x/exp/mmap":             {"loader"},
	"golang.org/x/sys/unix":             {"internal/backlog", "internal/hostmem", "internal/kernels", "internal/topology"},
	"gorgonia.org/cu":                   {"internal/backend/cuda"},
	"github.com/alecthomas/kong":        {"cmd", "internal/cmdline", "internal/cmdline/doctest"},
	"github.com/prometheus":             {"api"},
	"github.com/klauspost/cpuid":        {"internal/kernels/tune", "internal/kernels/isa"},
	"github.com/klauspost/compress":     {"train/data"}, // pages of Parquet files
	"golang.org/x/term":                 {"internal/repl"},
}

func TestImportsGoOneWay(t *testing.T) {
	for _, p := range packages(t) {
		edges, ok := allowed[p.path]
		if !ok && !testOnly(p) {
			t.Errorf("package %s is not in the table of imports: is it part of the design?", p.path)
			continue
		}
		used := map[string]bool{}
		for _, f := range p.files {
			if strings.HasSuffix(f.name, "_test.go") {
				continue // tests may use the libraries that they compare with
			}
			for _, imp := range f.imports {
				own, ours := strings.CutPrefix(imp, module+"/")
				used[own] = true
				switch {
				case ours && own != p.path && !slices.ContainsFunc(edges, func(edge string) bool { return covers(edge, own) }):
					t.Errorf("%s: %s may not import %s", f.name, p.path, own)
				case !ours:
					checkHome(t, f.name, p.path, imp)
				}
			}
		}
		for _, own := range edges {
			if own != "*" && !slices.ContainsFunc(slices.Collect(maps.Keys(used)), func(path string) bool { return covers(own, path) }) {
				t.Errorf("the table of imports lets %s import %s, which it does not", p.path, own)
			}
		}
	}
}

// Tests of models ran on whatever GPUs the machine had, with build tag cuda. Package testenv hides them in test binaries,
// so each that can open a model has it.
func TestTestsSeeNoGPUsThatTheyDoNotAskFor(t *testing.T) {
	imports := map[string][]string{} // of packages without their tests
	for _, p := range packages(t) {
		for _, f := range p.files {
			if !strings.HasSuffix(f.name, "_test.go") {
				imports[p.path] = append(imports[p.path], f.imports...)
			}
		}
	}
	for _, p := range packages(t) {
		tests, list := false, []string{module + "/" + p.path}
		for _, f := range p.files {
			if strings.HasSuffix(f.name, "_test.go") {
				tests, list = true, append(list, f.imports...)
			}
		}
		has := map[string]bool{}
		for len(list) > 0 {
			own, ours := strings.CutPrefix(list[0], module+"/")
			if list = list[1:]; ours && !has[own] {
				has[own] = true
				list = append(list, imports[own]...)
			}
		}
		if tests && has["dispatch"] && !has["internal/testenv"] {
			t.Errorf("tests of %s may open models: import _ %q, which hides GPUs", p.path, module+"/internal/testenv")
		}
	}
}

// dialects are the packages that each speak one API over HTTP.
var dialects = []string{"api/openai", "api/responses", "api/messages", "api/ollama"}

// Dialects once took the decoding of sampling and the shape of errors from api/openai, so that a change to one API
// changed the others. Their shared code is in neutral packages: api/wire, api/generate and api/internal.
// Only api, which serves all of them, may import a dialect.
func TestDialectsDoNotImportEachOther(t *testing.T) {
	for _, d := range dialects {
		if _, ok := allowed[d]; !ok {
			t.Errorf("the table of imports has no dialect %s", d)
		}
	}
	for _, p := range packages(t) {
		if p.path == "api" || !strings.HasPrefix(p.path, "api/") {
			continue
		}
		for _, f := range p.files {
			for _, imp := range f.imports {
				own := strings.TrimPrefix(imp, module+"/")
				if own != p.path && slices.Contains(dialects, own) && !strings.HasSuffix(f.name, "_test.go") {
					t.Errorf("%s imports the dialect %s: use api/wire, api/generate or a package of api/internal", f.name, own)
				}
			}
		}
	}
}

// covers reports whether an edge of the table allows the import of a package.
func covers(edge, path string) bool {
	folder, all := strings.CutSuffix(edge, "/...")
	return edge == "*" || path == folder || all && strings.HasPrefix(path, folder+"/")
}

func checkHome(t *testing.T, file, pkg, imp string) {
	t.Helper()
	for lib, where := range homes {
		if imp != lib && !strings.HasPrefix(imp, lib+"/") {
			continue
		}
		if !slices.ContainsFunc(where, func(h string) bool { return pkg == h || strings.HasPrefix(pkg, h+"/") }) {
			t.Errorf("%s imports %s, which only %v may", file, imp, where)
		}
	}
}

// testOnly are packages that help tests, which every test may import.
func testOnly(p pkg) bool {
	return slices.Contains([]string{"internal/golden", "internal/testenv", "internal/archtest"}, p.path)
}

// Folders that hold no Go, such as bin and the models of README's commands, are the user's
// own.
func TestTopLevelHoldsOnlyTheDesign(t *testing.T) {
	want := []string{"go.mod", "go.sum", "cmd", "meta", "dispatch", "loader", "devicemap", "train", "api", "text", "README.md",
		"internal", "docs", "deploy", "examples", "scripts", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md",
		"LICENSE", "Makefile", "testdata"}
	for _, name := range topLevel(t) {
		if !slices.Contains(want, name) && !strings.HasPrefix(name, ".") {
			t.Errorf("the top level holds %s, which the design does not name", path.Base(name))
		}
	}
}
