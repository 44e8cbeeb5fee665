package generate_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/engine/holder"
	"github.com/heftai/heft/internal/generatetest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

type embeddingFile struct {
	Tolerance float64 `json:"tolerance"`
	Cases     []struct {
		Model      string    `json:"model"`
		IDs        []int32   `json:"input_ids"`
		Pooling    string    `json:"pooling"`
		Normalise  bool      `json:"normalize"`
		Dimensions int       `json:"dimensions"`
		Embedding  []float64 `json:"embedding"`
	} `json:"cases"`
}

var poolingModes = map[string]meta.PoolingMode{"cls": meta.PoolFirst, "lasttoken": meta.PoolLast, "mean": meta.PoolMean}

// TestGoldenEmbeddings compares with the reference's hidden states, pooled. Prompts are
// computed in small chunks.
func TestGoldenEmbeddings(t *testing.T) {
	root := golden.Path(t, "infer")
	var f embeddingFile
	if !golden.JSON(t, filepath.Join(root, "embeddings", "cases.json"), &f) {
		root = filepath.Join(golden.Module(t), "testdata", "golden", "infer")
		golden.JSON(t, filepath.Join(root, "embeddings", "cases.json"), &f)
	}
	engines := map[string]*engine.Engine{}
	for i, c := range f.Cases {
		e := engines[c.Model]
		if e == nil {
			e = openEngine(t, golden.Unpacked(t, filepath.Join(root, filepath.FromSlash(c.Model))))
			engines[c.Model] = e
		}
		t.Run(fmt.Sprintf("%d %s %s", i, c.Model, c.Pooling), func(t *testing.T) {
			m := &generate.Model{Name: c.Model, Text: generate.Text{Pooling: meta.Pooling{Mode: poolingModes[c.Pooling], Normalise: c.Normalise}}}
			holder.SetEngine(m, e)
			vectors, usage, err := m.Embed(t.Context(), generate.EmbedRequest{Prompts: [][]int32{c.IDs}, Dimensions: c.Dimensions})
			if err != nil {
				t.Fatal(err)
			}
			if len(vectors) != 1 || len(vectors[0]) != len(c.Embedding) || usage.Prompt != len(c.IDs) {
				t.Fatalf("%d vectors, usage %+v", len(vectors), usage)
			}
			for k, want := range c.Embedding {
				if got := float64(vectors[0][k]); !(math.Abs(got-want) <= f.Tolerance*(1+math.Abs(want))) {
					t.Errorf("value %d is %v, want %v", k, got, want)
				}
			}
		})
	}
	golden.Count(t, "infer/embeddings", len(f.Cases))
}

func openEngine(t *testing.T, dir string) *engine.Engine {
	t.Helper()
	skeleton, checkpoint, err := loader.OpenModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checkpoint.Close() })
	bound, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}),
		dispatch.Options{Threads: 1, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bound.Close)
	e := engine.New(engine.ForDispatch(bound), engine.Options{MaxBatchTokens: 8})
	t.Cleanup(e.Close)
	return e
}

// TestEmbedKeepsTheOrder embeds many more prompts than the engine may have waiting.
func TestEmbedKeepsTheOrder(t *testing.T) {
	fake := &enginetest.Model{}
	m := generatetest.Fake(t, fake, engine.Options{MaxBatch: 4, MaxQueue: 40})
	var prompts [][]int32
	for i := range 300 {
		prompts = append(prompts, slices.Repeat([]int32{int32(i % 64)}, i/64+1))
	}
	vectors, usage, err := m.Embed(t.Context(), generate.EmbedRequest{Prompts: prompts})
	if err != nil {
		t.Fatal(err)
	}
	tokens := 0
	for i, p := range prompts {
		tokens += len(p)
		if !slices.Equal(vectors[i], fake.State(p)) {
			t.Fatalf("vector %d is another's", i)
		}
	}
	if usage.Prompt != tokens {
		t.Errorf("%d tokens, want %d", usage.Prompt, tokens)
	}
}

func TestEmbedErrors(t *testing.T) {
	m := generatetest.Fake(t, &enginetest.Model{MaxLen: 8}, engine.Options{})
	one := [][]int32{{1, 2, 3}}
	odd := &generate.Model{Text: generate.Text{Pooling: meta.Pooling{Unsupported: "pooling by max_tokens"}}}
	holder.SetEngine(odd, generatetest.Engine(m))
	for name, test := range map[string]struct {
		model *generate.Model
		r     generate.EmbedRequest
		kind  wire.Kind
		param string
	}{
		"too many dimensions": {m, generate.EmbedRequest{Prompts: one, Dimensions: 5}, wire.Invalid, "dimensions"},
		"too long":            {m, generate.EmbedRequest{Prompts: [][]int32{{1}, make([]int32, 9)}, Param: "input"}, wire.TooLong, "input"},
		"no such id":          {m, generate.EmbedRequest{Prompts: [][]int32{{1 << 20}}, Param: "input"}, wire.Invalid, "input"},
		"unsupported":         {odd, generate.EmbedRequest{Prompts: one}, wire.Invalid, "model"},
		"no hidden states": {generatetest.Fake(t, &enginetest.Model{Mute: true}, engine.Options{}),
			generate.EmbedRequest{Prompts: one}, wire.Internal, ""},
	} {
		_, _, err := test.model.Embed(t.Context(), test.r)
		var own *wire.Error
		if !errors.As(err, &own) || own.Kind != test.kind || own.Field != test.param {
			t.Errorf("%s: %#v", name, err)
		}
	}
	slow := generatetest.Fake(t, &enginetest.Model{Delay: time.Hour}, engine.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := slow.Embed(ctx, generate.EmbedRequest{Prompts: one}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a client that goes away: %v", err)
	}
}
