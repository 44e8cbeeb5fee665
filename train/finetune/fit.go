package finetune

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/track"
)

// loop is a Trainer of any batch type.
type loop interface {
	Train(ctx context.Context) (train.TrainResult, error)
	State() *train.TrainerState
}

// student is one rank's model with its tape and its accelerator.
type student struct {
	*job
	acc        *train.Accelerator
	tape       *tensor.Tape
	model      *model.Model
	checkpoint *loader.Checkpoint // holds the frozen weights; nil if all weights train
	router     float32            // weight of the routers' auxiliary loss, or 0
	closers    []func() error     // close what the method opened
	whole      train.Checkpointed // the module to train and save, if it is more than model
	head       *tensor.Parameter  // of a reward model, or nil
	from       string             // folder of the config and the tokenizer, if it is not the model's
	recompute  bool
	sweep      sweeping
	unit       string  // of the progress line, if not the method's default
	repeats    int     // optimizer steps on each window; 0 means 1
	sampled    float32 // temperature of the losses of methods that sample; 0 means 1
	diverged   bool    // the divergence has been logged
	lost       bool    // the last loss was not finite
	began      bool    // the checkpoint to resume from, if any, is loaded
	evaluating bool    // the next losses are for an evaluation
}

func (s *student) close() error {
	var err error
	for _, f := range s.closers {
		err = errors.Join(err, f())
	}
	if s.model != nil {
		err = errors.Join(err, s.model.Close())
	}
	if s.checkpoint != nil {
		err = errors.Join(err, s.checkpoint.Close())
	}
	return err
}

// rank runs one rank's part of the job.
func (j *job) rank(ctx context.Context, w *train.World) error {
	s, err := j.student(w)
	if err != nil {
		return err
	}
	defer s.close()
	trainer, err := j.method().prepare(s)
	if err != nil {
		return err
	}
	if err := s.acc.InitTrackers("", s.tracked()); err != nil {
		return err
	}
	defer s.acc.EndTraining()
	result, err := trainer.Train(ctx)
	if err != nil {
		return s.fullDisk(s.unfit(err))
	}
	s.checkWeights()
	if s.acc.IsMainProcess() {
		s.result = Result{Output: s.Output, Steps: result.GlobalStep, Seconds: result.Runtime.Seconds(), Metrics: result.Metrics,
			Diverged: s.lost, DiskBytes: s.diskBytes()}
		if result.BestLost != nil {
			s.result.BestLost = result.BestLost.Error()
		}
		if loss := result.Loss; loss != 0 && finite(loss) {
			s.result.Loss = &loss
		}
	}
	if state := trainer.State(); state.GlobalStep < state.MaxSteps {
		if result.Interrupted {
			return errInterrupted
		}
		s.acc.Logger().Info("the run stopped early", "step", state.GlobalStep, "of", state.MaxSteps,
			"evaluations_without_a_better_one", s.EarlyStoppingPatience, "metric", s.MetricForBest)
	}
	if err := s.save(ctx, s.Output); err != nil {
		return s.fullDisk(err)
	}
	if err := s.acc.OnMainProcess(s.writeCard); err != nil {
		return err
	}
	if err := s.showCurve(); err != nil {
		return err
	}
	return s.acc.EndTraining()
}

// showCurve draws the loss in the terminal, if the curve tracker is enabled and has points.
func (s *student) showCurve() error {
	c, ok := s.acc.Tracker("curve").(*track.Curve)
	if !ok || !slices.ContainsFunc(c.Curves(), func(line track.Series) bool { return len(line.X) > 1 }) {
		return nil
	}
	return c.WriteText(s.Progress)
}

func (j *job) student(w *train.World) (*student, error) {
	acc, err := train.New(train.Config{
		World: w, Plugin: j.sharing(w), MixedPrecision: j.MixedPrecision, Corrections: train.Corrected(), Logger: j.log, LogWith: j.LogWith,
		DataLoader: train.DataLoaderConfig{UseSeedableSampler: true, DataSeed: j.Seed, UseStatefulDataLoader: true},
		Project:    train.ProjectConfiguration{ProjectDir: j.Output, LoggingDir: j.LoggingDir, SkipFrozen: true},
	})
	if err != nil {
		return nil, misuse(err)
	}
	acc.SetSeed(j.Seed, true)
	s := &student{job: j, acc: acc, tape: acc.NewTape(tensor.Options{Threads: j.threads})}
	return s, s.open()
}

// fit makes the Trainer of a method, whose losses f computes. s's data must be a sampleSet of S.
func fit[S, B any](s *student, c train.TrainerConfig[B], f losing[B], collate data.Collate[S, B]) (loop, error) {
	of, ok := s.data.set.(sampleSet[S])
	if !ok {
		return nil, fmt.Errorf("finetune: --method %s: got data %T, want %T", s.Method, s.data.set, of)
	}
	order, err := s.order(of.train.Len())
	if err != nil {
		return nil, err
	}
	loader, err := data.NewLoader(of.train, collate, order)
	if err != nil {
		return nil, err
	}
	if c.Optimizer, err = s.optimizer(); err != nil {
		return nil, err
	}
	c.Accelerator, c.Train = s.acc, loader
	computes(s, &c, f)
	c.Arguments = train.TrainingArguments{
		OutputDir: s.Output, Epochs: s.Epochs, MaxSteps: s.MaxSteps, GradientAccumulationSteps: s.GradientAccumulationSteps,
		MaxGradNorm: s.MaxGradNorm, Schedule: s.LRScheduler, ScheduleOptions: s.scheduleOptions(), WarmupSteps: s.warmup(), LogSteps: s.LogSteps, EvalSteps: s.EvalSteps,
		SaveSteps: s.SaveSteps, SaveTotalLimit: s.SaveTotalLimit, Resume: s.Resume == "auto",
		LoadBestAtEnd: s.LoadBest, MetricForBest: s.ranking(), GreaterIsBetter: s.GreaterIsBetter,
	}
	if s.resumesDir() {
		c.Arguments.ResumeFrom, c.Arguments.OwnOptions = s.Resume, true
	}
	if s.LoRA == "" {
		c.From = cmp.Or(s.from, s.job.model)
	} else {
		s.acc.RegisterSaveStatePreHook(func(dir string) error {
			return s.acc.OnMainProcess(func() error { return s.saveAdapter(dir) })
		})
	}
	for _, e := range of.evals {
		l, err := data.NewLoader(e.of, collate, data.Options{BatchSize: s.Batch})
		if err != nil {
			return nil, err
		}
		if e.name == "" {
			c.Eval = l
		} else {
			c.Evals = append(c.Evals, train.EvalSet[B]{Name: e.name, Loader: l})
		}
	}
	if s.acc.IsMainProcess() {
		c.Callbacks = append(c.Callbacks, showProgress(s.Progress, cmp.Or(s.unit, s.method().usual().unit)))
	}
	c.Callbacks = append(c.Callbacks, s.stopping()...)
	begin := func(context.Context, *train.Moment) error { s.began = true; return nil }
	c.Callbacks = append(c.Callbacks, train.OnEvent(train.TrainBegin, begin), train.OnEvent(train.StepEnd, s.watch))
	c.Interrupted = func(step int) bool { return s.interrupted() && step%max(1, s.repeats) == 0 }
	return train.NewTrainer(c)
}

// order returns the order of n samples. If windows are trained on several times, the repetitions
// follow each other.
func (s *student) order(n int) (data.Options, error) {
	o := data.Options{BatchSize: s.Batch, Shuffle: s.Shuffle, Global: s.acc.Generator()}
	if s.repeats < 2 {
		return o, nil
	}
	window := s.Batch * s.ranks * s.GradientAccumulationSteps
	if n < window {
		return o, misusef("got %d prompts, want at least %d for a step, since --num-iterations %d leaves shorter ones out", n, window, s.repeats)
	}
	var all data.Sampler = data.SequentialSampler(n)
	if s.Shuffle {
		all = data.NewSeedableRandomSampler(n, s.Seed)
	}
	o.Shuffle = false
	var err error
	o.Sampler, err = data.NewRepeatSampler(all, window, s.repeats)
	return o, err
}

// trained returns the module whose parameters train.
func (s *student) trained() tensor.Module {
	if s.whole != nil {
		return s.whole
	}
	return s.model
}

// checkWeights finds a divergence in the last step, which has no later loss to show it.
func (s *student) checkWeights() {
	if finite(optim.WeightNorm(train.Params(s.trained()), 2)) {
		return
	}
	if s.lost = true; !s.diverged && s.acc.IsMainProcess() {
		s.log.Warn("weights are not finite after the last step: use a lower --lr or a lower --max-grad-norm")
	}
}

// watch logs a warning the first time that the loss is not finite.
func (s *student) watch(_ context.Context, m *train.Moment) error {
	s.lost = !finite(m.Result.Loss)
	if loss := m.Result.Loss; !s.diverged && s.acc.IsMainProcess() && !finite(loss) {
		s.diverged = true
		s.log.Warn("the loss is not finite: use an earlier checkpoint, a lower --lr or a lower --max-grad-norm if it stays so", "step", m.State.GlobalStep)
	}
	return nil
}

// warmup returns the number of warmup steps, rounded as in transformers.
func (s *student) warmup() int {
	if s.WarmupRatio == 0 {
		return int(s.WarmupSteps)
	}
	batches := (s.data.samples + s.Batch*s.ranks - 1) / (s.Batch * s.ranks) * max(1, s.repeats)
	steps := optim.TrainerSteps(batches, s.GradientAccumulationSteps, s.Epochs, s.MaxSteps)
	return int(math.Ceil(float64(steps) * s.WarmupRatio))
}

// optimizer returns the optimizer for the model's parameters. Weight decay does not apply to biases
// and norms. With muon, AdamW steps embeddings and heads.
func (s *student) optimizer() (optim.Optimizer, error) {
	opt, err := s.descent()
	if err != nil {
		return nil, misuse(err)
	}
	module := s.trained()
	s.warnDisk(s.checkpointBytes(module, opt))
	var decayed, others, ends []optim.Param
	decays := decayOf(s.model.Meta().Root)
	for name, p := range module.Parameters() {
		switch {
		case !p.Trainable:
		case !decays(name):
			others = append(others, train.Params(p)...)
		case s.Optimizer == "muon" && s.isEnd(name):
			ends = append(ends, train.Params(p)...)
		default:
			decayed = append(decayed, train.Params(p)...)
		}
	}
	if err := opt.AddGroup(decayed); err != nil {
		return nil, err
	}
	if len(ends) > 0 {
		if err := opt.AddGroup(ends, func(g *optim.Group) { g.Adam = true }); err != nil {
			return nil, err
		}
	}
	if len(others) == 0 {
		return opt, nil
	}
	return opt, opt.AddGroup(others, func(g *optim.Group) { g.WeightDecay = 0 })
}

// isEnd reports whether a parameter belongs to an embedding or a head, whose rows stand for tokens
// or scores.
func (s *student) isEnd(name string) bool {
	if spec, ok := s.model.Meta().Root.Spec.(*meta.CausalLMSpec); ok && (strings.HasPrefix(name, spec.Head+".") || strings.HasPrefix(name, spec.Embed+".")) {
		return true
	}
	return name == scoreName
}

// batch converts rows of b to a batch of the model. Packed texts become segments.
func batch(b data.TokenBatch, from, rows int) model.Batch {
	m := model.Batch{Length: b.Columns}
	for i := from * b.Columns; i < (from+rows)*b.Columns; i++ {
		m.IDs, m.Labels = append(m.IDs, int(b.IDs[i])), append(m.Labels, int(b.Labels[i]))
		m.Mask = append(m.Mask, b.Mask[i] != 0)
		if b.Positions == nil {
			continue
		}
		segment := 0
		if n := len(m.Segments); n > 0 {
			if segment = m.Segments[n-1]; b.Positions[i] != b.Positions[i-1]+1 {
				segment++
			}
		}
		m.Segments = append(m.Segments, segment)
	}
	return m
}

// open loads the model: into memory to train all of it, or memory-mapped under an adapter.
func (s *student) open() error {
	config, err := readConfig(s.job.model)
	if err != nil {
		return err
	}
	if config.Field("output_router_logits") == true {
		s.router = 0.001
		if v, ok := config.Field("router_aux_loss_coef").(json.Number); ok {
			if f, err := v.Float64(); err == nil {
				s.router = float32(f)
			}
		}
	}
	if s.checkpoint, err = loader.Open(s.job.model); err != nil {
		return err
	}
	skeleton, err := meta.New(config, s.checkpoint)
	if err != nil {
		return err
	}
	binding, err := loader.Bind(s.checkpoint, skeleton)
	if err != nil {
		return err
	}
	if err := s.checkStored(skeleton); err != nil {
		return err
	}
	s.recompute = s.recomputes(skeleton)
	if s.LoRA != "" {
		return s.adapt(skeleton, binding)
	}
	frozen, err := s.frozen()
	if err != nil {
		return err
	}
	var options []model.Option
	limit := s.stateMemory(skeleton)
	if limit > 0 {
		options = append(options, model.OffloadParameters(limit, s.Output))
	} else if s.acc.IsMainProcess() {
		if err := s.warnState(dispatch.DescribeHost(), skeleton, frozen); err != nil {
			return err
		}
	}
	if frozen != nil {
		return s.freeze(skeleton, binding, frozen, options)
	}
	if s.model, err = model.Load(skeleton, binding, options...); err != nil {
		return err
	}
	if limit > 0 { // weights are read on demand
		s.showState(limit)
		return nil
	}
	err = s.checkpoint.Close() // all weights have been read
	s.checkpoint = nil
	return err
}

// freeze keeps the weights that --freeze selects in the checkpoint, untrained.
func (s *student) freeze(skeleton *meta.Model, binding *loader.Binding, frozen func(string) bool, options []model.Option) (err error) {
	some, all := 0, 0
	for path, p := range skeleton.Root.AllParams() {
		if p.SameAs == nil {
			all++
			if frozen(path) {
				some++
			}
		}
	}
	switch some {
	case 0:
		return misusef("--freeze %s matches none of the model's parameters", strings.Join(s.Freeze, " "))
	case all:
		return misusef("--freeze %s matches all of the model's parameters, so that none trains", strings.Join(s.Freeze, " "))
	}
	if s.model, err = model.Load(skeleton, binding, append(options, model.Freeze(frozen))...); err == nil && s.acc.IsMainProcess() {
		s.log.Info("frozen", "parameters", some, "of", all)
	}
	return err
}

// checkStored rejects full training of quantised weights, and merging adapters into them.
func (s *student) checkStored(skeleton *meta.Model) error {
	for path, p := range skeleton.Root.AllParams() {
		for _, source := range p.Sources {
			switch q := source.Quant; {
			case q == nil:
			case s.LoRA == "":
				return misusef("%s is stored as %v, which cannot be trained: train an adapter with --lora r=16", path, q.Format)
			case s.Merge:
				return misusef("--merge: %s is stored as %v, which cannot be merged: omit --merge and serve the adapter with serve --lora", path, q.Format)
			}
		}
	}
	return nil
}

// adapt keeps all weights in the checkpoint and adds an adapter, which is the same on all ranks.
func (s *student) adapt(skeleton *meta.Model, binding *loader.Binding) error {
	c, err := parseLoRA(s.LoRA)
	if err != nil {
		return err
	}
	if err := checkNames(c, skeleton.Root); err != nil {
		return err
	}
	c.BaseModel, c.DoRA, c.Save = s.BaseModel, s.DoRA, s.ModulesToSave
	trained, err := s.adapterBytes(skeleton, c)
	if err != nil {
		return misuse(err)
	}
	host, beside := dispatch.DescribeHost(), s.passBytes(skeleton)+trained
	options := []model.Option{model.Freeze(func(string) bool { return true })}
	if s.Method == "reward" {
		options = append(options, model.WithoutHead()) // a head for scores replaces it
	}
	if s.Quantize != "" {
		options = append(options, model.Quantize(s.format()))
	} else if limit := s.baseMemory(host, beside); limit > 0 {
		s.sweep = s.sweeps(skeleton)
		options = append(options, model.MaxMemory(limit), model.Activations(s.sweep.memory, s.Output))
		if s.sweep.batches > 1 {
			options = append(options, model.PackOnce())
		}
		if rows := s.logitRows(skeleton); rows > 0 {
			options = append(options, model.LogitRows(int(rows)))
		}
	}
	if s.model, err = model.Load(skeleton, binding, options...); err != nil {
		return err
	}
	if s.acc.IsMainProcess() {
		s.showMemory(host, beside)
	}
	if s.Method == "reward" {
		if err := s.score(skeleton); err != nil {
			return err
		}
		c.TaskType = "SEQ_CLS"
		c.Exclude = append(c.Exclude, skeleton.Root.Spec.(*meta.CausalLMSpec).Head) // replaced by the head for scores
	}
	if dir, ok := strings.CutPrefix(s.LoRA, adapterFrom); ok {
		err = s.model.LoadAdapter(dir, s.outside()...)
	} else {
		err = s.model.AddLoRA(c, rng.New(s.Seed))
	}
	if err != nil || !s.Merge {
		return err
	}
	if _, err = s.model.MergeAdapter(); err != nil { // fail now, not after the last step
		return misusef("--merge: %w", err)
	}
	return nil
}

// finite reports whether a loss is neither NaN nor infinite.
func finite(loss float64) bool { return !math.IsNaN(loss) && !math.IsInf(loss, 0) }
