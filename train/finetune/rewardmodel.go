package finetune

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// rewardModel learns to score answers, so that the chosen answer of a pair gets the higher number.
// A head on the state of the last token replaces the model's own head.
type rewardModel struct{}

func (rewardModel) usual() usual { return usual{rate: 1e-4, adapterRate: 1e-3, unit: "pairs"} }

func (rewardModel) check(j *job) error {
	if !(j.CenterRewardsCoefficient >= 0) {
		return misusef("got --center-rewards-coefficient %v, want 0 or more", j.CenterRewardsCoefficient)
	}
	return nil
}

func (rewardModel) metrics(*job) []string {
	return []string{"accuracy", "margin", "min_reward", "mean_reward", "max_reward"}
}

func (rewardModel) read(j *job, t *data.Tokenizer, o data.TextOptions) (*texts, error) {
	return j.readPairs(t, o)
}

func (rewardModel) prepare(s *student) (loop, error) {
	if s.head == nil { // otherwise the adapter has it
		if err := s.score(s.model.Meta()); err != nil {
			return nil, err
		}
	}
	spec := s.model.Meta().Root.Spec.(*meta.CausalLMSpec) // score has checked the type
	m := &scored{s.model, s.head, spec.Head + "."}
	var err error
	s.leavesRouters("answers are")
	s.whole = m
	if s.from, err = s.writeScored(); err != nil {
		return nil, err
	}
	r := &scorer{student: s, scored: m, meter: train.NewMeter(rewardModel{}.metrics(s.job)...)}
	c := train.TrainerConfig[data.ComparisonBatch]{Model: &switchedScore{m, s}, Meter: r.meter, WithoutPerplexity: true,
		Items: func(b data.ComparisonBatch) int { return b.Prompts }}
	return fit(s, c, r.losses, s.collate())
}

// scored is a model with a head that scores texts. Its parameters have the names of transformers'
// AutoModelForSequenceClassification.
type scored struct {
	*model.Model
	head *tensor.Parameter // [1 hidden]
	own  string            // prefix of the names of the head that it replaces
}

const scoreName = "score.weight"

// scoredDir is the prefix of the temporary folder, in the output folder, with a reward model's
// config.
const scoredDir = ".reward-config"

// score makes the head of a reward model with random weights, which are the same on all ranks.
func (s *student) score(m *meta.Model) error {
	spec, ok := m.Root.Spec.(*meta.CausalLMSpec)
	if !ok {
		return misusef("--method reward: got a %s, want a causal language model", m.Root.Class)
	}
	width := float32(0.02)
	if v, ok := m.Config.Field("initializer_range").(json.Number); ok {
		if f, err := v.Float64(); err == nil {
			width = float32(f)
		}
	}
	head := make([]float32, spec.Hidden)
	rng.New(s.Seed).Normal(head, 0, width)
	s.head = tensor.NewParameter(head, 1, spec.Hidden)
	s.head.Trainable = true
	return nil
}

// Parameters yields the parameters of the model without its head, and the new head.
func (m *scored) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) {
		for name, p := range m.Model.Parameters() {
			if !strings.HasPrefix(name, m.own) && !yield(name, p) {
				return
			}
		}
		yield(scoreName, m.head)
	}
}

// Checkpoint yields the tensors of a checkpoint for sequence classification. An adapter is merged.
func (m *scored) Checkpoint() (iter.Seq[loader.NamedTensor], error) {
	checkpoint := m.Model.Checkpoint
	if m.Adapted() {
		checkpoint = m.MergeAdapter
	}
	all, err := checkpoint()
	if err != nil {
		return nil, err
	}
	return func(yield func(loader.NamedTensor) bool) {
		for t := range all {
			if !strings.HasPrefix(t.Name, m.own) && !yield(t) {
				return
			}
		}
		yield(loader.NamedTensor{Name: scoreName, DType: meta.Float32, Shape: m.head.Shape(), Bytes: func() (b []byte, err error) {
			err = m.head.Access(false, func(values []float32) error {
				b, err = binary.Append(nil, binary.LittleEndian, values)
				return err
			})
			return b, err
		}})
	}, nil
}

// writeScored writes the config and the tokenizer of a sequence-classification model to a temporary
// folder, from which all checkpoints copy them.
func (s *student) writeScored() (string, error) {
	dir := filepath.Join(s.Output, scoredDir)
	s.closers = append(s.closers, func() error { return s.acc.OnMainProcess(func() error { return os.RemoveAll(dir) }) })
	return dir, s.acc.OnMainProcess(func() error {
		files, err := os.ReadDir(s.job.model)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		for _, f := range files {
			if ext := filepath.Ext(f.Name()); ext != ".json" && ext != ".model" && ext != ".jinja" && ext != ".txt" && ext != ".tiktoken" {
				continue
			}
			b, err := smallfile.Read(filepath.Join(s.job.model, f.Name()), smallfile.Tokenizer)
			if err == nil && f.Name() == "config.json" {
				b, err = scoredConfig(b, s.data.pad)
			}
			if err == nil {
				err = atomicfile.WriteFile(filepath.Join(dir, f.Name()), b)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// scoredConfig converts a config.json to one for sequence classification with one label.
func scoredConfig(b []byte, pad int32) ([]byte, error) {
	var config map[string]any
	if err := json.Unmarshal(b, &config); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	if names, ok := config["architectures"].([]any); ok && len(names) > 0 {
		name, _ := names[0].(string)
		for _, suffix := range []string{"ForCausalLM", "LMHeadModel", "ForConditionalGeneration"} {
			name = strings.TrimSuffix(name, suffix)
		}
		config["architectures"] = []string{name + "ForSequenceClassification"}
	}
	config["id2label"], config["label2id"] = map[string]string{"0": "LABEL_0"}, map[string]int{"LABEL_0": 0}
	if config["pad_token_id"] == nil {
		config["pad_token_id"] = pad
	}
	return json.MarshalIndent(config, "", "  ")
}

// scorer is a student that learns to score answers.
type scorer struct {
	*student
	scored *scored
	meter  *train.Meter
}

// switchedScore is the scorer's model for a Trainer.
type switchedScore struct {
	*scored
	s *student
}

func (m *switchedScore) SetTraining(on bool) { m.s.evaluating = !on }

// losses returns the loss of each batch, summed over its pairs.
func (s *scorer) losses(_ context.Context, batches []data.ComparisonBatch) ([]*tensor.Tensor, error) {
	of, options := make([]model.Batch, len(batches)), make([]model.Options, len(batches))
	for i, b := range batches {
		of[i], options[i] = batch(b.TokenBatch, 0, b.Rows), s.options(tensor.CrossEntropyOptions{})
	}
	states, err := s.model.HiddenStatesOfBatches(s.tape, of, options)
	if err != nil {
		return nil, err
	}
	out := make([]*tensor.Tensor, len(batches))
	for i, b := range batches {
		if out[i], err = s.loss(b, states[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// loss returns the loss of a batch from the states of its tokens.
func (s *scorer) loss(b data.ComparisonBatch, states *tensor.Tensor) (*tensor.Tensor, error) {
	tp := s.tape
	last := make([]int, b.Rows) // the last token of each row
	for i, in := range b.Mask {
		if in != 0 {
			last[i/b.Columns] = i
		}
	}
	width := s.scored.head.Len()
	rewards := tp.Linear(tp.Gather(tp.Reshape(states, b.Rows*b.Columns, width), last), tp.Use(s.scored.head), nil)
	chosen, rejected := tp.Slice(rewards, 0, 0, b.Prompts), tp.Slice(rewards, 0, b.Prompts, 2*b.Prompts)
	difference := tp.Sub(chosen, rejected)
	if b.Margins != nil {
		difference = tp.Sub(difference, tp.Input(b.Margins, b.Prompts, 1))
	}
	loss := tp.Neg(tp.Sum(tp.LogSigmoid(difference)))
	if c := s.CenterRewardsCoefficient; c > 0 {
		loss = tp.Add(loss, tp.Scale(tp.Sum(tp.Pow(tp.Add(chosen, rejected), 2)), float32(c)))
	}
	if err := tp.Err(); err != nil {
		return nil, err
	}
	lowest, highest := math.Inf(1), math.Inf(-1)
	for i := range b.Prompts {
		x, y := float64(chosen.Data()[i]), float64(rejected.Data()[i])
		better := 0.0
		if x > y {
			better = 1
		}
		s.meter.Add("accuracy", better, 1)
		s.meter.Add("margin", x-y, 1)
		s.meter.Add("mean_reward", x+y, 2)
		lowest, highest = min(lowest, x, y), max(highest, x, y)
	}
	s.meter.Add("min_reward", lowest, 1)
	s.meter.Add("max_reward", highest, 1)
	return loss, nil
}
