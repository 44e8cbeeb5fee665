package finetune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/sample"
	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/data"
)

// completer generates completions with a student's weights, on the engine that serve uses, and
// rewards them.
//
// With an adapter, the engine's model is the base, whose memory mapping it shares. It loads the
// adapter of each step from a temporary folder. A model that trains as a whole is written to a
// temporary folder at each step and opened again.
type completer struct {
	s         *student
	tokenizer *data.Tokenizer
	stop      []int32
	dir       string // temporary
	model     *dispatch.Model
	engine    *engine.Engine
	adapter   string // the name of the current step's adapter, or ""
	step      int    // the step whose weights are loaded; -1 before the first
	evaluated int    // prompts evaluated with these weights
	rewards   []namedReward
}

// rollDir is the prefix of temporary folders in the output folder.
const rollDir = ".rollout-"

// newCompleter creates a completer with its rewards. With an adapter it starts the engine on the
// base.
func (s *student) newCompleter() (r *completer, err error) {
	r = &completer{s: s, step: -1, dir: filepath.Join(s.Output, fmt.Sprintf("%s%d", rollDir, s.acc.ProcessIndex()))}
	s.closers = append(s.closers, r.close)
	if r.tokenizer, err = openTokenizer(s.job.model); err != nil {
		return nil, err
	}
	if r.stop, err = s.stops(r.tokenizer); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(r.dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	var ended func() error
	if r.rewards, ended, err = s.namedRewards(); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, ended)
	if s.LoRA == "" {
		return r, nil
	}
	return r, r.open(s.job.model)
}

// open starts an engine on a model.
func (r *completer) open(path string) error {
	s := r.s
	quantize, _ := meta.ParseQuantize(s.Quantize) // the flag has been checked
	most := min(s.Batch*s.GradientAccumulationSteps*s.NumGenerations, 16)
	o := dispatch.Options{Threads: s.threads, Precision: dispatch.PrecisionHigh, Lazy: true, Context: s.Sequence, MaxSequences: most,
		KVTokens: most * s.Sequence, Quantize: quantize}
	for _, p := range s.model.Parameters() {
		if s.LoRA != "" && p.Trainable {
			o.AdapterMemory += 4 * int64(p.Len())
		}
	}
	if s.LoRA != "" { // for two steps' adapters, with activations
		o.AdapterMemory = 4*o.AdapterMemory + 256<<20
	}
	var err error
	if r.model, err = dispatch.Open(path, o); err != nil {
		return fmt.Errorf("finetune: generating completions: %w", err)
	}
	waiting := s.Batch * s.GradientAccumulationSteps * s.NumGenerations
	r.engine = engine.New(engine.ForDispatch(r.model), engine.Options{MaxBatch: most, MaxQueue: 2*waiting + 1})
	return nil
}

// stops returns the ids that end a completion.
func (s *student) stops(t *data.Tokenizer) (ids []int32, err error) {
	config, err := readConfig(s.job.model)
	if err != nil {
		return nil, err
	}
	all := config.EOS
	if !isGGUF(s.job.model) {
		switch g, err := meta.ReadGenerationConfigFile(filepath.Join(s.job.model, "generation_config.json")); {
		case err == nil && len(g.EOS) > 0:
			all = g.EOS
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	for _, id := range all {
		ids = append(ids, int32(id))
	}
	if id, ok := t.Special("eos_token"); ok {
		ids = append(ids, id)
	}
	return ids, nil
}

// load loads the student's weights into the engine, if a step has changed them.
func (r *completer) load(step int) error {
	if r.step == step {
		return nil
	}
	r.evaluated = 0
	name := fmt.Sprintf("step-%d", step)
	dir, before := filepath.Join(r.dir, name), filepath.Join(r.dir, fmt.Sprintf("step-%d", r.step))
	var err error
	if r.s.LoRA != "" {
		err = r.loadAdapter(name, dir)
	} else {
		err = r.loadModel(dir)
	}
	if err != nil {
		return fmt.Errorf("finetune: generating completions: %w", err)
	}
	if r.step >= 0 {
		err = os.RemoveAll(before)
	}
	r.step = step
	return err
}

func (r *completer) loadAdapter(name, dir string) error {
	if err := r.s.model.SaveAdapter(dir); err != nil {
		return err
	}
	if r.adapter != "" {
		if err := r.model.RemoveAdapter(r.adapter); err != nil {
			return err
		}
	}
	r.adapter = name
	return r.model.AddAdapter(dispatch.Adapter{Name: name, Dir: dir})
}

func (r *completer) loadModel(dir string) error {
	r.stopEngine()
	weights, err := r.s.model.Checkpoint()
	if err != nil {
		return err
	}
	if err := loader.Save(dir, weights, loader.SaveOptions{}); err != nil {
		return err
	}
	config, err := smallfile.Read(filepath.Join(r.s.job.model, "config.json"), smallfile.Config)
	if err != nil {
		return err
	}
	if err := atomicfile.WriteFile(filepath.Join(dir, "config.json"), config); err != nil {
		return err
	}
	return r.open(dir)
}

func (r *completer) stopEngine() {
	if r.engine != nil {
		r.engine.Close()
		r.model.Close()
		r.engine = nil
	}
}

func (r *completer) close() error {
	r.stopEngine()
	return os.RemoveAll(r.dir)
}

// generate completes prompts with the weights of a step, and rewards the completions. It is
// deterministic in the weights, prompts and seed.
func (r *completer) generate(ctx context.Context, all []*rollout, step int, evaluating bool) error {
	if err := r.load(step); err != nil {
		return err
	}
	failed := make([]error, len(all))
	var wg sync.WaitGroup
	for i, x := range all {
		seed := mix(r.s.Seed, uint64(step), uint64(r.s.acc.ProcessIndex()), uint64(i))
		if evaluating {
			seed = mix(^r.s.Seed, uint64(step), uint64(r.s.acc.ProcessIndex()), uint64(r.evaluated))
			r.evaluated++
		}
		wg.Go(func() { failed[i] = r.continued(ctx, x, seed) })
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("finetune: generating completions: %w", err)
	}
	for _, x := range all {
		if err := r.rewarded(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// continued generates the completions of a prompt.
func (r *completer) continued(ctx context.Context, x *rollout, seed uint64) error {
	s := r.s
	most := min(s.MaxCompletionLength, s.Sequence-len(x.Prompt))
	stream, err := r.engine.Submit(ctx, engine.Request{Prompt: x.Prompt, MaxTokens: most, N: s.NumGenerations, Seed: seed, Adapter: r.adapter,
		Params: sample.Params{Temperature: s.Temperature, TopP: s.TopP, TopK: s.TopK, Stop: r.stop}})
	if err != nil {
		return err
	}
	defer stream.Close()
	x.Completions, x.ended = make([][]int32, s.NumGenerations), make([]bool, s.NumGenerations)
	for {
		e, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if e.Token != engine.NoToken {
			x.Completions[e.Choice] = append(x.Completions[e.Choice], e.Token)
		}
		if e.Finish == engine.FinishStop {
			x.ended[e.Choice] = true
		}
	}
}

// rewarded rewards the completions of a prompt.
func (r *completer) rewarded(ctx context.Context, x *rollout) error {
	var texts []string
	for _, ids := range x.Completions {
		texts = append(texts, r.tokenizer.DecodeText(ids))
	}
	prompt := RewardPrompt{Text: r.tokenizer.Decode(x.Prompt), Record: x.record}
	var err error
	if x.parts, err = score(ctx, r.rewards, prompt, texts); err != nil {
		return err
	}
	x.Rewards = total(x.parts, weightsOf(r.rewards), len(texts))
	return nil
}

// mix hashes numbers to a seed.
func mix(numbers ...uint64) uint64 {
	h := uint64(0)
	for _, n := range numbers {
		h += n + 0x9e3779b97f4a7c15 // splitmix64
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}
