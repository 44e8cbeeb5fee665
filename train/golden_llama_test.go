package train

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// TestGoldenDDP trains a tiny llama on several ranks. Cases of a sharded optimizer run as plain ones
// too, whose numbers they share.
func TestGoldenDDP(t *testing.T) {
	n := 0
	t.Cleanup(func() { golden.Count(t, "train/ddp", n) })
	for _, path := range golden.Glob(t, "train/ddp/trace.json") {
		for _, c := range llamaCases(t, path) {
			n++
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				report(t, c.run(t))
				if c.Zero1 {
					c.stage = 1
					report(t, c.run(t))
				}
			})
		}
	}
}

// llamaCases reads the cases of a file: none if their model is not among the fixtures.
func llamaCases(t *testing.T, path string) []*llamaCase {
	var file struct {
		Base  string `json:"base_weights"`
		Cases []*llamaCase
	}
	golden.JSON(t, path, &file)
	base := filepath.Join(filepath.Dir(path), filepath.FromSlash(file.Base))
	if _, err := golden.Read(base); err != nil {
		return nil
	}
	for _, c := range file.Cases {
		c.dir, c.base = filepath.Dir(path), base
	}
	return file.Cases
}

type llamaCase struct {
	Name      string
	World     float64 `json:"world_size"`
	Steps     float64 `json:"accumulation"`
	BatchSize float64 `json:"per_device_batch_size"`
	Samples   float64 `json:"num_samples"`
	Epochs    float64
	Optimizer struct {
		Name  string
		LR    float64
		Decay float64 `json:"weight_decay"`
	}
	MaxNorm limit `json:"max_grad_norm"`
	Final   string
	Zero1   bool
	Ranks   []struct{ Rows []llamaRow }

	dir, base string
	texts     [][2][]int // input ids and labels
	stage     int        // of ZeRO; 0 runs TorchDDPPlugin
}

type llamaRow struct {
	Indices []float64
	Loss    *float64
	Sync    *bool    `json:"sync_gradients"`
	Mean    *float64 `json:"gathered_mean_loss"`
	Local   *float64 `json:"grad_norm_before_clip_local"`
	Norm    *float64 `json:"grad_norm"`
	Weights map[string]struct {
		Sum   *float64
		L2    float64
		First []float64 `json:"first4"`
	}
}

// llama is a tiny one, of the tape's operations.
type llama struct {
	c struct {
		Hidden int     `json:"hidden_size"`
		Layers int     `json:"num_hidden_layers"`
		Heads  int     `json:"num_attention_heads"`
		Groups int     `json:"num_key_value_heads"`
		Width  int     `json:"head_dim"`
		Eps    float64 `json:"rms_norm_eps"`
		Rope   struct {
			Theta float64 `json:"rope_theta"`
		} `json:"rope_parameters"`
	}
	names  []string
	params map[string]*tensor.Parameter
}

func (m *llama) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) {
		for _, name := range m.names {
			if !yield(name, m.params[name]) {
				return
			}
		}
	}
}

func newLlama(t *testing.T, base string) *llama {
	m := &llama{params: readArrays(t, base)}
	golden.JSON(t, filepath.Join(filepath.Dir(base), "config.json"), &m.c)
	for name := range m.params {
		m.names = append(m.names, name)
	}
	slices.Sort(m.names)
	return m
}

func (m *llama) loss(tape *tensor.Tape, ids, labels []int, rows int) *tensor.Tensor {
	use := func(name string) *tensor.Tensor { return tape.Use(m.params[name]) }
	length := len(ids) / rows
	turns := tensor.NewRotary(m.c.Width, length, m.c.Rope.Theta)
	x := tape.Embedding(use("model.embed_tokens.weight"), ids, rows, length)
	for i := range m.c.Layers {
		at := fmt.Sprintf("model.layers.%d.", i)
		h := tape.RMSNorm(x, use(at+"input_layernorm.weight"), m.c.Eps)
		heads := func(name string, n int) *tensor.Tensor {
			return tape.Reshape(tape.Linear(h, use(at+"self_attn."+name+".weight"), nil), rows, length, n, m.c.Width)
		}
		q, k := tape.Rope(heads("q_proj", m.c.Heads), turns, nil), tape.Rope(heads("k_proj", m.c.Groups), turns, nil)
		o := tape.Attention(q, k, heads("v_proj", m.c.Groups), tensor.AttentionOptions{Causal: true})
		o = tape.Reshape(o, rows, length, m.c.Heads*m.c.Width)
		x = tape.Add(x, tape.Linear(o, use(at+"self_attn.o_proj.weight"), nil))
		h = tape.RMSNorm(x, use(at+"post_attention_layernorm.weight"), m.c.Eps)
		mlp := tape.SwiGLU(tape.Linear(h, use(at+"mlp.gate_proj.weight"), nil), tape.Linear(h, use(at+"mlp.up_proj.weight"), nil))
		x = tape.Add(x, tape.Linear(mlp, use(at+"mlp.down_proj.weight"), nil))
	}
	x = tape.RMSNorm(x, use("model.norm.weight"), m.c.Eps)
	return tape.CausalLoss(tape.Linear(x, use("lm_head.weight"), nil), labels, tensor.CrossEntropyOptions{})
}

func (c *llamaCase) run(t *testing.T) error {
	var texts struct {
		Batches []struct {
			IDs    [][]int `json:"input_ids"`
			Labels [][]int
		} `json:"micro_batches"`
	}
	if !golden.JSON(t, filepath.Join(filepath.Dir(c.base), "data.json"), &texts) {
		return fmt.Errorf("no texts beside %s", c.base)
	}
	c.texts = nil
	for _, b := range texts.Batches {
		for i := range b.IDs {
			c.texts = append(c.texts, [2][]int{b.IDs[i], b.Labels[i]})
		}
	}
	models := make([]*llama, int(c.World))
	for r := range models {
		models[r] = newLlama(t, c.base)
	}
	if err := onRanks(t.Context(), len(models), func(ctx context.Context, w *World) error { return c.rank(ctx, w, models[w.Rank()]) }); err != nil {
		return err
	}
	if c.Final == "" {
		return nil
	}
	return c.final(readArrays(t, filepath.Join(c.dir, c.Final)), models[rankOfProcess()])
}

func (c *llamaCase) rank(ctx context.Context, w *World, m *llama) error {
	cfg := Config{World: w, GradientAccumulationSteps: int(c.Steps), Plugin: &TorchDDPPlugin{World: w}}
	if c.stage > 0 {
		cfg.Plugin = &LowLevelZeroPlugin{World: w, Stage: c.stage}
	}
	a, err := New(cfg)
	if err != nil {
		return err
	}
	o := optim.DefaultAdamW()
	o.LR, o.WeightDecay = c.Optimizer.LR, c.Optimizer.Decay
	var opt optim.Optimizer
	if strings.EqualFold(c.Optimizer.Name, "sgd") {
		opt, err = optim.NewSGD(Params(m), optim.SGDOptions{LR: c.Optimizer.LR, WeightDecay: c.Optimizer.Decay})
	} else {
		opt, err = optim.NewAdamW(Params(m), o)
	}
	if err != nil {
		return err
	}
	l := indices(int(c.Samples), int(c.BatchSize))
	if err := a.Prepare(m, &opt, l); err != nil {
		return err
	}
	tape, k, rows := tensor.NewTape(tensor.Options{Threads: 1}), 0, c.Ranks[w.Rank()].Rows
	for range int(c.Epochs) {
		for ids, err := range l.All(ctx) {
			if err != nil {
				return err
			}
			if k == len(rows) {
				return fmt.Errorf("more than %d steps", k)
			}
			err = a.Accumulate(ctx, func(ctx context.Context) error { return c.micro(ctx, a, m, tape, opt, ids, &rows[k]) }, m)
			if err != nil {
				return fmt.Errorf("step %d: %w", k, err)
			}
			k++
		}
	}
	return check("number of steps", new(len(rows)), k)
}

func (c *llamaCase) micro(ctx context.Context, a *Accelerator, m *llama, tape *tensor.Tape, opt optim.Optimizer, ids []int, w *llamaRow) error {
	var in, labels []int
	for _, id := range ids {
		in, labels = append(in, c.texts[id][0]...), append(labels, c.texts[id][1]...)
	}
	loss := m.loss(tape, in, labels, len(ids))
	value := float64(loss.Item())
	if err := first(sameFloats("batch", w.Indices, ids), a.Backward(ctx, loss)); err != nil {
		return err
	}
	mean, err := Reduce(ctx, a, []float64{value}, ReduceMean)
	params := Params(m)
	if c.stage > 0 && a.SyncGradients() {
		w.Local = nil // each rank has a part
	}
	err = first(err, check("SyncGradients", w.Sync, a.SyncGradients()), within("loss", 2e-5, w.Loss, value),
		within("mean loss", 2e-5, w.Mean, mean[0]), within("norm of this rank", 1e-4, w.Local, optim.Norm(params, 2)))
	if err != nil || !a.SyncGradients() {
		return err
	}
	norm, err := a.ClipGradNorm(params, float64(c.MaxNorm), 2)
	if err := first(err, within("norm", 1e-4, w.Norm, norm), opt.Step()); err != nil {
		return err
	}
	opt.ZeroGrad()
	for name, want := range w.Weights {
		x := m.params[name].Data()
		sum, l2 := 0.0, 0.0
		for _, v := range x {
			sum += float64(v)
			l2 += float64(v) * float64(v)
		}
		err = first(err, within(name+": sum", 2e-5*float64(len(x))+1e-5, want.Sum, sum), within(name+": l2", 3e-4, &want.L2, math.Sqrt(l2)))
		for i, v := range want.First {
			err = first(err, within(fmt.Sprintf("%s[%d]", name, i), 3e-4, &v, float64(x[i])))
		}
	}
	return err
}

func within(what string, tolerance float64, want *float64, got float64) error {
	if want != nil && !(math.Abs(*want-got) <= tolerance) {
		return fmt.Errorf("%s is %v, want %v", what, got, *want)
	}
	return nil
}

// final compares weights as the fixtures' tolerances say: all within 3e-4, 99.9 % within
// 2e-5.
func (c *llamaCase) final(want map[string]*tensor.Parameter, m *llama) error {
	far, all := 0, 0
	for name, p := range want {
		x, ok := m.params[name]
		if !ok || len(x.Data()) != len(p.Data()) {
			return fmt.Errorf("no parameter %s of %v", name, p)
		}
		for i, v := range p.Data() {
			d := math.Abs(float64(v) - float64(x.Data()[i]))
			if !(d <= 3e-4) {
				return fmt.Errorf("%s[%d] ends as %v, want %v", name, i, x.Data()[i], v)
			}
			if all++; d > 2e-5 {
				far++
			}
		}
	}
	if far*1000 > all {
		return fmt.Errorf("%d of %d weights are off by more than 2e-5", far, all)
	}
	return nil
}

// readArrays reads the float32 arrays of a safetensors file of trusted make.
func readArrays(t *testing.T, path string) map[string]*tensor.Parameter {
	t.Helper()
	b, err := golden.Read(path)
	if os.IsNotExist(err) || len(b) < 8 {
		t.Fatalf("%s: %v", path, err)
	}
	size := binary.LittleEndian.Uint64(b)
	var header map[string]struct {
		Shape   []int
		Offsets [2]int `json:"data_offsets"`
	}
	var raw map[string]json.RawMessage
	decode(t, b[8:8+size], &raw)
	delete(raw, "__metadata__")
	clean, err := json.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	decode(t, clean, &header)
	out := map[string]*tensor.Parameter{}
	for name, h := range header {
		part := b[8+int(size)+h.Offsets[0] : 8+int(size)+h.Offsets[1]]
		x := make([]float32, len(part)/4)
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(part[4*i:]))
		}
		out[name] = tensor.NewParameter(x, h.Shape...)
	}
	return out
}
