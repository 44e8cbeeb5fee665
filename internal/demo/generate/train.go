package main

import (
	"context"
	"encoding/binary"
	"iter"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/heftai/heft/internal/tokenizer"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// recipe configures the training.
type recipe struct {
	Steps, Batch, Length, Warmup int
	LR, WeightDecay, ClipNorm    float64
	Seed                         uint64
}

var standard = recipe{Steps: 2400, Batch: 32, Length: 160, Warmup: 100, LR: 3e-3, WeightDecay: 0.05, ClipNorm: 1, Seed: 7}

// lessons is a data set of conversations. The number of one is the seed that it is generated from.
type lessons struct {
	*teacher
	words *tokenizer.Tokenizer
	recipe
}

// Len returns the number of conversations of the whole training.
func (l *lessons) Len() int { return l.Steps * l.Batch }

// At returns conversation i, cut at Length tokens. Only answers have labels.
func (l *lessons) At(i int) (data.Sequence, error) {
	r := rand.New(rand.NewPCG(l.Seed, uint64(i)))
	s := data.Sequence{IDs: []int32{bosID}, Labels: []int32{data.IgnoreLabel}}
	say := func(role int32, text string, learned bool) error {
		ids, err := l.words.EncodeIDs(text, tokenizer.EncodeOptions{})
		if err != nil {
			return err
		}
		s.IDs = append(append(append(s.IDs, role), ids...), endID)
		s.Labels = append(s.Labels, data.IgnoreLabel)
		for _, id := range append(ids, endID) {
			if !learned {
				id = data.IgnoreLabel
			}
			s.Labels = append(s.Labels, id)
		}
		return nil
	}
	if text := system(r); text != "" {
		if err := say(systemID, text, false); err != nil {
			return s, err
		}
	}
	for len(s.IDs) < l.Length {
		for _, e := range l.conversation(r, 1) {
			if err := say(userID, e.question, false); err != nil {
				return s, err
			}
			if err := say(assistantID, e.answer, true); err != nil {
				return s, err
			}
		}
	}
	s.IDs, s.Labels = s.IDs[:l.Length], s.Labels[:l.Length]
	return s, nil
}

// teach trains the model of the config in dir from random weights and saves it there.
func teach(ctx context.Context, dir string, talks []talk, sum string, s shape, r recipe) error {
	m, err := fresh(dir, s, r.Seed)
	if err != nil {
		return err
	}
	words, err := tokenizer.Load(dir)
	if err != nil {
		return err
	}
	loader, err := data.NewLoader[data.Sequence, data.TokenBatch](&lessons{newTeacher(talks), words, r}, data.PadTokens(data.Padding{}),
		data.Options{BatchSize: r.Batch})
	if err != nil {
		return err
	}
	if err := fit(ctx, m, loader, r); err != nil {
		return err
	}
	return save(dir, m, sum)
}

// fit runs the steps of the recipe.
func fit(ctx context.Context, m *model.Model, loader *data.Loader[data.TokenBatch], r recipe) error {
	acc, err := train.New(train.Config{})
	if err != nil {
		return err
	}
	adam, err := optim.NewAdamW(train.Params(m), optim.AdamOptions{LR: r.LR, Beta2: 0.98, WeightDecay: r.WeightDecay})
	if err != nil {
		return err
	}
	var opt optim.Optimizer = adam
	schedule, err := optim.NewScheduler(opt, optim.ScheduleSpec{Name: "cosine", WarmupSteps: &r.Warmup, TrainingSteps: &r.Steps})
	if err != nil {
		return err
	}
	if err := acc.Prepare(m, &opt, &schedule, loader); err != nil {
		return err
	}
	tape := tensor.NewTape(tensor.Options{})
	begin, step := time.Now(), 0
	for batch, err := range loader.All(ctx) {
		if err != nil {
			return err
		}
		loss, err := m.Loss(tape, tokens(batch), model.Options{})
		if err != nil {
			return err
		}
		if err := acc.Backward(ctx, loss); err != nil {
			return err
		}
		if _, err := acc.ClipGradNorm(train.Params(m), r.ClipNorm, 2); err != nil {
			return err
		}
		if err := opt.Step(); err != nil {
			return err
		}
		if err := schedule.Step(); err != nil {
			return err
		}
		opt.ZeroGrad()
		if step++; step%50 == 0 || step == r.Steps {
			log.Printf("step %d of %d, loss %.3f, %.0f tokens/s, %v left", step, r.Steps, loss.Item(), float64(step*r.Batch*r.Length)/time.Since(begin).Seconds(),
				(time.Since(begin) / time.Duration(step) * time.Duration(r.Steps-step)).Round(time.Second))
		}
	}
	return nil
}

func tokens(b data.TokenBatch) model.Batch {
	out := model.Batch{Length: b.Columns}
	for i, id := range b.IDs {
		out.IDs, out.Labels = append(out.IDs, int(id)), append(out.Labels, int(b.Labels[i]))
	}
	return out
}

// fresh returns the model of the config in dir with initial weights: ones for norms, normal numbers
// for matrices, smaller ones for matrices that write to the residual stream.
func fresh(dir string, s shape, seed uint64) (*model.Model, error) {
	file, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, err
	}
	cfg, err := meta.ReadConfig(file)
	if err != nil {
		return nil, err
	}
	skeleton, err := meta.New(cfg, nil)
	if err != nil {
		return nil, err
	}
	m, err := model.New(skeleton)
	if err != nil {
		return nil, err
	}
	g := rng.New(seed)
	for name, p := range m.Parameters() {
		if len(p.Shape()) == 1 {
			copy(p.Data(), slices.Repeat([]float32{1}, len(p.Data())))
			continue
		}
		deviation := 0.02
		if strings.HasSuffix(name, ".o_proj.weight") || strings.HasSuffix(name, ".down_proj.weight") {
			deviation /= math.Sqrt(2 * float64(s.Layers))
		}
		g.Normal(p.Data(), 0, float32(deviation))
	}
	return m, nil
}

// save writes the model as bfloat16, with the checksum of the texts for a test.
func save(dir string, m *model.Model, sum string) error {
	all, err := m.Checkpoint()
	if err != nil {
		return err
	}
	return loader.Save(dir, halved(all), loader.SaveOptions{Metadata: map[string]string{"format": "pt", "text": sum}})
}

// halved rounds float32 tensors to bfloat16, to nearest even.
func halved(all iter.Seq[loader.NamedTensor]) iter.Seq[loader.NamedTensor] {
	return func(yield func(loader.NamedTensor) bool) {
		for t := range all {
			bytes := t.Bytes
			t.DType = meta.BFloat16
			t.Bytes = func() ([]byte, error) {
				from, err := bytes()
				to := make([]byte, 0, len(from)/2)
				for i := 0; i < len(from); i += 4 {
					bits := binary.LittleEndian.Uint32(from[i:])
					bits += 0x7FFF + bits>>16&1
					to = binary.LittleEndian.AppendUint16(to, uint16(bits>>16))
				}
				return to, err
			}
			if !yield(t) {
				return
			}
		}
	}
}
