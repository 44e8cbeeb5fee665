package finetune

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heftai/heft/train"
)

// namedReward is one of several rewards. A completion gets their weighted sum.
type namedReward struct {
	name   string
	weight float64
	reward RewardFunc
}

// Names of rewards that have no name of their own.
const (
	commandReward  = "command"
	functionReward = "function"
)

// rewardWeights parses --reward-weights: NAME=WEIGHT.
func (j *job) rewardWeights() (map[string]float64, error) {
	weights := map[string]float64{}
	for _, s := range j.RewardWeights {
		at := strings.LastIndexByte(s, '=')
		if at < 1 {
			return nil, misusef("got --reward-weights %s, want NAME=WEIGHT", s)
		}
		w, err := strconv.ParseFloat(s[at+1:], 64)
		if _, twice := weights[s[:at]]; err != nil || math.IsNaN(w) || math.IsInf(w, 0) || twice {
			return nil, misusef("got --reward-weights %s, want NAME=WEIGHT with a number, once for each name", s)
		}
		weights[s[:at]] = w
	}
	return weights, nil
}

// rewardNames returns the names of the rewards of generated completions, in order.
func (j *job) rewardNames() []string {
	var names []string
	all, _ := parseRules(j.RewardRules) // cannot fail: checkRewards has checked them
	for _, r := range all {
		names = append(names, r.name)
	}
	if j.RewardCommand != "" {
		names = append(names, commandReward)
	}
	if j.Reward != nil {
		names = append(names, functionReward)
	}
	return append(names, slices.Sorted(maps.Keys(j.RewardFuncs))...)
}

// checkWeights rejects weights of rewards that do not exist, and rewards with the same name.
func (j *job) checkWeights(names []string) error {
	weights, err := j.rewardWeights()
	if err != nil {
		return err
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return misusef("got two rewards with the name %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		if !slices.Contains(names, name) {
			return misusef("--reward-weights %s: got no reward of this name, want one of %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// namedRewards returns the rewards of a rank, and a function that ends them.
func (s *student) namedRewards() (list []namedReward, end func() error, err error) {
	weights, err := s.rewardWeights()
	if err != nil {
		return nil, nil, err
	}
	end = func() error { return nil }
	add := func(name string, weight float64, f RewardFunc) {
		if w, ok := weights[name]; ok {
			weight = w
		}
		list = append(list, namedReward{name, weight, f})
	}
	all, err := parseRules(s.RewardRules)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range all {
		weight := r.weight
		r.weight = 1
		add(r.name, weight, rules{r}.reward)
	}
	if s.RewardCommand != "" {
		p, err := startReward(s.RewardCommand, time.Duration(s.RewardTimeout*float64(time.Second)), s.log)
		if err != nil {
			return nil, nil, err
		}
		end = p.close
		add(commandReward, 1, p.reward)
	}
	if s.Reward != nil {
		add(functionReward, 1, s.Reward)
	}
	for _, name := range slices.Sorted(maps.Keys(s.RewardFuncs)) {
		add(name, 1, s.RewardFuncs[name])
	}
	return list, end, nil
}

// score computes the rewards of the completions of a prompt.
func score(ctx context.Context, list []namedReward, prompt RewardPrompt, completions []string) (parts map[string][]float64, err error) {
	parts = map[string][]float64{}
	for _, s := range list {
		rewards, err := s.reward(ctx, prompt, completions)
		if err == nil {
			err = checkRewarded(rewards, len(completions))
		}
		if err != nil {
			return nil, fmt.Errorf("finetune: reward %s: %w", s.name, err)
		}
		parts[s.name] = rewards
	}
	return parts, nil
}

// total returns the weighted sums of rewards, as in TRL. A reward of NaN does not count. A
// completion without rewards that count gets NaN.
func total(parts map[string][]float64, weights map[string]float64, completions int) []float64 {
	names := slices.Sorted(maps.Keys(parts)) // a fixed order, for the same bits
	sums := make([]float64, completions)
	for i := range sums {
		counted := false
		for _, name := range names {
			if v := parts[name][i]; !math.IsNaN(v) {
				w, ok := weights[name]
				if !ok {
					w = 1
				}
				sums[i], counted = sums[i]+w*v, true
			}
		}
		if !counted {
			sums[i] = math.NaN()
		}
	}
	return sums
}

// weightsOf returns the weights of rewards by name.
func weightsOf(list []namedReward) map[string]float64 {
	weights := map[string]float64{}
	for _, s := range list {
		weights[s.name] = s.weight
	}
	return weights
}

// rewardMetrics returns the names of the metrics of rewards.
func rewardMetrics(names []string) (metrics []string) {
	for _, name := range names {
		metrics = append(metrics, "rewards/"+name+"/mean", "rewards/"+name+"/std")
	}
	return metrics
}

// measureRewards adds the mean and the standard deviation of each reward to the metrics.
func (g *grouper) measureRewards(ctx context.Context, all []*rollout) error {
	for _, name := range g.rewards {
		var values []float64
		for _, r := range all {
			values = append(values, r.parts[name]...)
		}
		for _, v := range values {
			if !math.IsNaN(v) {
				g.meter.Add("rewards/"+name+"/mean", v, 1)
			}
		}
		if !g.evaluating && g.ranks > 1 { // ranks may have evaluations of different lengths
			var err error
			if values, err = train.GatherObject(ctx, g.acc, values); err != nil {
				return err
			}
		}
		if _, deviation := train.RewardMoments(values); len(values) > 1 {
			g.meter.Add("rewards/"+name+"/std", deviation, 1)
		}
	}
	return nil
}
