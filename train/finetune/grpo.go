package finetune

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/tensor"
)

// grpo is group relative policy optimization. It learns from completions and rewards in the data,
// or from completions that the model generates and rewards score.
type grpo struct{}

func (grpo) usual() usual { return usual{rate: 1e-6, adapterRate: 1e-5, unit: "tok"} }

func (grpo) objective(j *job) train.GRPO {
	return train.GRPO{Beta: j.beta(), Epsilon: j.Epsilon, EpsilonHigh: j.EpsilonHigh, LossType: j.LossType, MaxCompletion: j.MaxCompletionLength, ScaleRewards: j.ScaleRewards}
}

func (m grpo) check(j *job) error {
	switch {
	case j.MaxCompletionLength < 1 || j.NumIterations < 1:
		return misusef("got --max-completion-length %d and --num-iterations %d, want at least 1", j.MaxCompletionLength, j.NumIterations)
	case !(j.Temperature > 0) || math.IsInf(j.Temperature, 0):
		return misusef("got --temperature %v, want more than 0", j.Temperature)
	case j.NumIterations > 1 && j.SaveSteps > 0 && j.SaveSteps%j.NumIterations != 0:
		return misusef("got --save-steps %d, want a multiple of --num-iterations %d: a run resumes with new completions", j.SaveSteps, j.NumIterations)
	}
	if err := misused(m.objective(j).Check()); err != nil {
		return err
	}
	return j.checkRewards()
}

// checkRewards rejects invalid options of generated completions.
func (j *job) checkRewards() error {
	if _, err := j.rewardWeights(); err != nil || !j.generates() {
		return err // for rewards in the data, weights are checked after reading it
	}
	switch {
	case j.NumGenerations < 2:
		return misusef("got --num-generations %d, want at least 2: a completion is compared with the others of its prompt", j.NumGenerations)
	case !(j.TopP > 0 && j.TopP <= 1) || j.TopK < 0:
		return misusef("got --top-p %v and --top-k %d, want more than 0 and at most 1, and 0 or more", j.TopP, j.TopK)
	case !(j.RewardTimeout > 0):
		return misusef("got --reward-timeout %v, want more than 0", j.RewardTimeout)
	case j.MaxMemory != "":
		return misusef("--max-memory: weights do not stream while completions are generated: omit it, or give completions and rewards in --data")
	case j.Quantize == "nf4":
		return misusef("--quantize nf4: completions are not generated with it: use q8_0 or q4_0")
	}
	if _, err := parseRules(j.RewardRules); err != nil {
		return err
	}
	return j.checkWeights(j.rewardNames())
}

// generates reports whether the run generates completions.
func (j *job) generates() bool {
	return j.Reward != nil || len(j.RewardFuncs) > 0 || j.RewardCommand != "" || len(j.RewardRules) > 0
}

// rollout is a prompt with its completions, which are given or generated.
type rollout struct {
	data.Group
	record     json.RawMessage
	parts      map[string][]float64 // rewards by name, or nil
	ended      []bool               // whether each completion ended by itself
	advantages []float64
	old        [][]float32 // losses of tokens under the policy that generated them, for --num-iterations
}

func (grpo) read(j *job, tokenizer *data.Tokenizer, o data.TextOptions) (*texts, error) {
	o.MaxLength = j.Sequence
	read := func(path string) (made[*rollout], error) { return j.tokenizeGroups(path, tokenizer, o) }
	var s sampleSet[*rollout]
	all, evals, err := sets(j, read, read, whole[*rollout])
	if err != nil {
		return nil, err
	}
	s.train, s.evals = all.Dataset, evals
	if err := j.nameRewards(s); err != nil {
		return nil, err
	}
	return textsOf(s, func(r *rollout) (length, tokens int) {
		if j.generates() {
			most := min(j.Sequence-len(r.Prompt), j.MaxCompletionLength)
			return j.NumGenerations * (len(r.Prompt) + most), j.NumGenerations * most
		}
		for _, c := range r.Completions {
			length, tokens = max(length, len(r.Completions)*(len(r.Prompt)+len(c))), tokens+len(c)
		}
		return length, tokens
	})
}

// nameRewards determines the names of the rewards. For named rewards in the data, it also computes
// the weighted sums.
func (j *job) nameRewards(s sampleSet[*rollout]) error {
	if j.generates() {
		j.rewards = j.rewardNames()
		return nil
	}
	weights, err := j.rewardWeights()
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for i := range s.train.Len() {
		r, err := s.train.At(i)
		if err != nil {
			return err
		}
		for name := range r.parts {
			names[name] = true
		}
	}
	j.rewards = append([]string{}, slices.Sorted(maps.Keys(names))...) // not nil: the names are known
	for _, set := range append(s.evals, named[data.Dataset[*rollout]]{of: s.train}) {
		for i := range set.of.Len() {
			r, err := set.of.At(i)
			if err != nil {
				return err
			}
			if r.parts != nil {
				r.Rewards = total(r.parts, weights, len(r.Completions))
			}
		}
	}
	return j.checkWeights(j.rewards)
}

// tokenizeGroups reads a file of prompts. It omits unusable ones.
func (j *job) tokenizeGroups(path string, tokenizer *data.Tokenizer, o data.TextOptions) (out made[*rollout], err error) {
	records, err := data.OpenGroups(path)
	if err != nil {
		return out, misuse(err)
	}
	defer records.Close()
	rewards, err := parseRules(j.RewardRules)
	if err != nil {
		return out, err
	}
	var all data.Slice[*rollout]
	r, err := tokenized(j, path, records, func(r data.GroupRecord) (*rollout, []int32, error) {
		switch {
		case j.generates():
			if _, err := rewards.fields(r.JSON); err != nil {
				return nil, nil, err
			}
			r.Completions, r.Rewards, r.RewardsBy = nil, nil, nil
		case r.Completions == nil:
			return nil, nil, errors.New("got a prompt without completions and rewards: use --reward or --reward-command to generate and reward them")
		}
		g, err := r.Tokenize(tokenizer, tokenizer, o, j.MaxCompletionLength)
		ids := g.Prompt
		for _, c := range g.Completions {
			ids = append(ids[:len(ids):len(ids)], c...)
		}
		return &rollout{Group: g, record: r.JSON, parts: r.RewardsBy}, ids, err
	}, func(r *rollout) error {
		all = append(all, r)
		return nil
	})
	if err != nil {
		return out, err
	}
	r.log(j, path)
	out.Dataset = all
	return out, nil
}

// metrics includes the metrics of rewards that the data names, once the data is read.
func (m grpo) metrics(j *job) []string {
	rewards := j.rewards
	if j.generates() {
		rewards = j.rewardNames()
	}
	names := append(m.objective(j).Metrics(), rewardMetrics(rewards)...)
	names = append(names, "reward", "reward_std", "frac_reward_zero_std", "completions/min_length", "completions/mean_length", "completions/max_length")
	if j.generates() {
		names = append(names, "completions/clipped_ratio")
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "kl" && j.beta() == 0 })
}

func (m grpo) prepare(s *student) (loop, error) {
	g := &grouper{student: s, objective: m.objective(s.job), meter: train.NewMeter(m.metrics(s.job)...)}
	s.leavesRouters("completions are")
	if s.LossType != "" && s.LossType != "dapo" {
		s.unit = "completions"
	}
	s.repeats, s.sampled = s.NumIterations, float32(s.Temperature)
	var err error
	if g.objective.Beta != 0 {
		if g.reference, err = s.openReference(); err != nil {
			return nil, err
		}
	}
	if s.generates() {
		if g.completer, err = s.newCompleter(); err != nil {
			return nil, err
		}
	}
	c := train.TrainerConfig[[]*rollout]{Model: &switched{s.model, s}, BeforeWindow: g.ready,
		WithoutPerplexity: true,
		Items:             func(b []*rollout) int { tokens, _ := g.rows(b); return g.objective.Items(tokens) }, Meter: g.meter}
	g.loop, err = fit(s, c, g.losses, func(samples []*rollout) ([]*rollout, error) {
		var fresh []*rollout // in a later epoch the prompt gets new completions
		for _, r := range samples {
			c := *r
			fresh = append(fresh, &c)
		}
		return fresh, nil
	})
	return g.loop, err
}

// grouper is a student that learns from groups of completions.
type grouper struct {
	*student
	objective train.GRPO
	meter     *train.Meter
	reference *model.Model
	completer *completer // nil if the data has the completions
	loop      loop
	kept      [][]*rollout // the previous window
}

// ready completes the batches of a window, or restores those of the previous window if it is
// trained on again.
func (g *grouper) ready(ctx context.Context, batches [][]*rollout) error {
	if g.loop.State().GlobalStep%g.NumIterations == 0 {
		g.kept = batches
		var all []*rollout
		for _, b := range batches {
			all = append(all, b...)
		}
		return g.complete(ctx, all)
	}
	if len(batches) != len(g.kept) {
		return fmt.Errorf("finetune: --num-iterations: got a window of %d batches after one of %d", len(batches), len(g.kept))
	}
	for i, b := range batches {
		copy(b, g.kept[i])
	}
	return nil
}

// complete generates and rewards completions, unless they are given, and computes advantages. In
// training all ranks must call it together.
func (g *grouper) complete(ctx context.Context, all []*rollout) error {
	if g.completer != nil {
		if err := g.completer.generate(ctx, all, g.loop.State().GlobalStep, g.evaluating); err != nil {
			return err
		}
	}
	var groups [][]float64
	var rewards []float64
	for _, r := range all {
		groups, rewards = append(groups, r.Rewards), append(rewards, r.Rewards...)
	}
	if !g.evaluating && g.ranks > 1 { // ranks may have evaluations of different lengths
		var err error
		if rewards, err = train.GatherObject(ctx, g.acc, rewards); err != nil {
			return err
		}
	}
	for i, a := range g.objective.Advantages(groups, rewards) {
		all[i].advantages = a
	}
	g.measure(all, rewards)
	return g.measureRewards(ctx, all)
}

// measure adds statistics of completions and rewards to the metrics.
func (g *grouper) measure(all []*rollout, rewards []float64) {
	if _, deviation := train.RewardMoments(rewards); len(rewards) > 1 {
		g.meter.Add("reward_std", deviation, 1)
	}
	shortest, longest := math.Inf(1), 0.0
	for _, r := range all {
		_, deviation := train.RewardMoments(r.Rewards)
		if deviation < 1e-8 {
			g.meter.Add("frac_reward_zero_std", float64(len(r.Rewards)), len(r.Rewards))
		} else {
			g.meter.Add("frac_reward_zero_std", 0, len(r.Rewards))
		}
		for k, c := range r.Completions {
			if !math.IsNaN(r.Rewards[k]) {
				g.meter.Add("reward", r.Rewards[k], 1)
			}
			n := float64(len(c))
			shortest, longest = min(shortest, n), max(longest, n)
			g.meter.Add("completions/mean_length", n, 1)
			if r.ended != nil && !r.ended[k] {
				g.meter.Add("completions/clipped_ratio", 1, 1)
			} else if r.ended != nil {
				g.meter.Add("completions/clipped_ratio", 0, 1)
			}
		}
	}
	if longest > 0 {
		g.meter.Add("completions/min_length", shortest, 1)
		g.meter.Add("completions/max_length", longest, 1)
	}
}

// rows returns the completions of a batch as padded rows, with their advantages.
func (g *grouper) rows(b []*rollout) (tokens data.TokenBatch, advantages []float64) {
	var rows []data.Sequence
	for _, r := range b {
		for k := range r.Completions {
			rows = append(rows, r.Row(k))
		}
		advantages = append(advantages, r.advantages...)
	}
	tokens, _ = data.PadTokens(data.Padding{ID: g.data.pad})(rows) // cannot fail: rows have as many labels as ids
	return tokens, advantages
}

// losses returns the loss of each batch, summed over its items.
func (g *grouper) losses(ctx context.Context, batches [][]*rollout) ([]*tensor.Tensor, error) {
	all, of := &passes{student: g.student, reference: g.reference}, make([]train.GRPOLosses, len(batches))
	for i, b := range batches {
		if g.evaluating {
			if err := g.complete(ctx, b); err != nil {
				return nil, err
			}
		}
		tokens, _ := g.rows(b)
		if g.reference != nil {
			all.judge(tokens, &of[i].Reference)
		}
		o := g.options(perToken)
		o.Temperature, o.Entropies = g.sampled, &of[i].Entropies
		all.own.add(tokens, o, &of[i].Policy)
	}
	if err := all.run(); err != nil {
		return nil, err
	}
	out := make([]*tensor.Tensor, len(batches))
	for i, b := range batches {
		tokens, advantages := g.rows(b)
		of[i].Old = old(b, tokens)
		if g.NumIterations > 1 && of[i].Old == nil && !g.evaluating {
			keep(b, tokens, of[i].Policy.Data())
		}
		var err error
		if out[i], err = train.GRPOLoss(g.tape, g.objective, tokens, advantages, of[i], g.meter); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keep stores the losses of the completions' tokens.
func keep(b []*rollout, tokens data.TokenBatch, losses []float32) {
	at := 0
	for _, r := range b {
		for range r.Completions {
			row := losses[at*tokens.Columns : (at+1)*tokens.Columns]
			r.old = append(r.old, append([]float32(nil), row...))
			at++
		}
	}
}

// old returns the losses that keep has stored, or nil.
func old(b []*rollout, tokens data.TokenBatch) []float32 {
	all := make([]float32, 0, tokens.Rows*tokens.Columns)
	for _, r := range b {
		if r.old == nil {
			return nil
		}
		for _, row := range r.old {
			all = append(all, row...)
		}
	}
	return all
}
