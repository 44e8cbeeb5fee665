package golden

import (
	"iter"
	"math"
	"path/filepath"
	"testing"
)

// Model is what the reference computes of a checkpoint, a folder of infer/models, in
// float32.
type Model struct {
	// Dir is the folder, with config.json and the weights.
	Dir string `json:"-"`
	// NumParameters counts tied weights once and quantised ones unpacked, and no buffers.
	NumParameters int64     `json:"num_parameters"`
	Tolerance     Tolerance `json:"tolerance"`
	Prompts       []Prompt  `json:"prompts"`
	Padding       *Padding  `json:"padding"`
}

// Name is the folder's own.
func (m *Model) Name() string { return filepath.Base(m.Dir) }

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
	m := &Model{Dir: filepath.Join(Module(t), "testdata", "golden", "infer", "models", name)}
	if !JSON(t, filepath.Join(m.Dir, "golden.json"), m) {
		t.FailNow()
	}
	return m
}

// Models reads the models of the root, one after the other.
func Models(t testing.TB) iter.Seq[*Model] {
	t.Helper()
	files := Glob(t, "infer/models/*/golden.json")
	return func(yield func(*Model) bool) {
		for _, file := range files {
			m := &Model{Dir: filepath.Dir(file)}
			if JSON(t, file, m) && !yield(m) {
				return
			}
		}
	}
}
