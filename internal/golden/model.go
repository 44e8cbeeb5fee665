package golden

import (
	"iter"
	"math"
	"path/filepath"
	"sync"
	"testing"
)

// Model is what the reference computes of a checkpoint, a folder of infer/models, in
// float32.
type Model struct {
	// Stored is the folder, with config.json. Its weights may be gzipped: Dir unpacks them.
	Stored string `json:"-"`
	unpack func() string
	// NumParameters counts tied weights once and quantised ones unpacked, and no buffers.
	NumParameters int64     `json:"num_parameters"`
	Tolerance     Tolerance `json:"tolerance"`
	Prompts       []Prompt  `json:"prompts"`
	Padding       *Padding  `json:"padding"`
}

// Name is the folder's own.
func (m *Model) Name() string { return filepath.Base(m.Stored) }

// Dir is a folder with config.json and the weights, which are unpacked by the first call.
func (m *Model) Dir() string { return m.unpack() }

// Tolerance is how far float32 arithmetic may be off.
type Tolerance struct {
	Atol float64 `json:"logits_atol"`
	Rtol float64 `json:"logits_rtol"`
}

// Holds tells whether got is as good as want; nothing is as good as NaN.
func (t Tolerance) Holds(got, want float64) bool {
	return math.Abs(got-want) <= t.Atol+t.Rtol*math.Abs(want)
}

// Prompt is one prompt, what follows from each of its tokens, and its greedy continuation.
type Prompt struct {
	IDs            []int32     `json:"input_ids"`
	Last           []float64   `json:"last_logits"` // of the last position, whole
	Top5IDs        [][]int32   `json:"top5_ids"`    // of every position
	Top5           [][]float64 `json:"top5_logits"`
	LogProbs       []float64   `json:"token_logprobs"` // of IDs[1:]
	LogProbSum     *float64    `json:"logprob_sum"`
	Greedy         []int32     `json:"greedy_ids"`
	GreedyLogProbs []float64   `json:"greedy_logprobs"`
	Hidden         *struct {
		Embeddings *Hidden  `json:"embeddings"`
		Layers     []Hidden `json:"layers"`
		Norm       *Hidden  `json:"final_norm"`
	} `json:"hidden"`
}

// Hidden sums up the hidden states at one point of a pass.
type Hidden struct {
	Mean  float64   `json:"mean"` // over positions and channels
	Std   float64   `json:"std"`  // of the population
	Last  []float64 `json:"last_pos_first8"`
	First []float64 `json:"first_pos_first8"`
}

// Padding is a batch of some of the prompts, padded on the left.
type Padding struct {
	IDs  [][]int32 `json:"input_ids"`
	Mask [][]int32 `json:"attention_mask"` // 0: padding
}

// OwnModel reads a model of this repository's infer/models.
func OwnModel(t testing.TB, name string) *Model {
	t.Helper()
	m := readModel(t, ownModel(t, name))
	if m == nil {
		t.FailNow()
	}
	return m
}

// OwnDir is the folder of a model of this repository's infer/models, with unpacked weights.
func OwnDir(t testing.TB, name string) string {
	t.Helper()
	return Unpacked(t, ownModel(t, name))
}

// OwnMTP is the folder of a model with modules for multi-token prediction, of this repository's testdata/mtp, with
// unpacked weights.
func OwnMTP(t testing.TB, name string) string {
	t.Helper()
	return Unpacked(t, filepath.Join(Module(t), "testdata", "mtp", name))
}

func ownModel(t testing.TB, name string) string {
	return filepath.Join(Module(t), "testdata", "golden", "infer", "models", name)
}

// readModel returns nil if dir has no golden.json.
func readModel(t testing.TB, dir string) *Model {
	t.Helper()
	m := &Model{Stored: dir, unpack: sync.OnceValue(func() string { return Unpacked(t, dir) })}
	if !JSON(t, filepath.Join(dir, "golden.json"), m) {
		return nil
	}
	return m
}

// Models reads the models of the root, one after the other.
func Models(t testing.TB) iter.Seq[*Model] {
	t.Helper()
	files := Glob(t, "infer/models/*/golden.json")
	return func(yield func(*Model) bool) {
		for _, file := range files {
			if m := readModel(t, filepath.Dir(file)); m != nil && !yield(m) {
				return
			}
		}
	}
}
