package finetune

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/optim"
)

// checkLoop rejects values of flags that have no effect or are invalid, before the data is read.
func (c *job) checkLoop() error {
	adam := slices.Contains([]string{"adamw", "adamw8bit", "adam", "muon"}, c.Optimizer)
	switch {
	case !(c.AdamBeta1 > 0 && c.AdamBeta1 < 1 && c.AdamBeta2 > 0 && c.AdamBeta2 < 1):
		return misusef("got --adam-beta1 %v and --adam-beta2 %v, want more than 0 and less than 1", c.AdamBeta1, c.AdamBeta2)
	case !(c.AdamEpsilon > 0):
		return misusef("got --adam-epsilon %v, want more than 0", c.AdamEpsilon)
	case !adam && (c.AdamBeta1 != 0.9 || c.AdamBeta2 != 0.999 || c.AdamEpsilon != 1e-8):
		return misusef("--adam-beta1, --adam-beta2 and --adam-epsilon need --optimizer adamw, adamw8bit, adam or muon")
	case !(c.Momentum >= 0 && c.Momentum < 1):
		return misusef("got --momentum %v, want 0 or more and less than 1", c.Momentum)
	case slices.Contains([]string{"adafactor", "muon", "adamw8bit"}, c.Optimizer) && c.Plugin != "ddp":
		return misusef("--optimizer %s needs --plugin ddp: it steps whole parameters, which other plugins split between ranks", c.Optimizer)
	case c.Momentum != 0 && !slices.Contains([]string{"sgd", "rmsprop", "muon"}, c.Optimizer):
		return misusef("--momentum needs --optimizer sgd, rmsprop or muon")
	case c.EarlyStoppingPatience < 0 || !(c.EarlyStoppingThreshold >= 0):
		return misusef("got --early-stopping-patience %d and --early-stopping-threshold %v, want 0 or more", c.EarlyStoppingPatience, c.EarlyStoppingThreshold)
	case (c.LoadBest || c.EarlyStoppingPatience > 0) && (!c.evaluates() || c.EvalSteps < 0):
		return misusef("--load-best and --early-stopping-patience need evaluations: use --eval-data or --eval-split, and --eval-steps of 0 or more")
	case c.LoadBest && !c.savesEvaluations():
		return misusef("--load-best needs an evaluation at every checkpoint: got --save-steps %d and --eval-steps %d, want both 0 or --save-steps a multiple of --eval-steps", c.SaveSteps, c.EvalSteps)
	}
	if err := c.checkEffect(); err != nil {
		return err
	}
	return c.checkResume()
}

// checkEffect rejects options that would have no effect, or an effect other than their names
// promise.
func (c *job) checkEffect() error {
	switch {
	case c.EvalSteps > 0 && !c.evaluates():
		return misusef("--eval-steps needs --eval-data or --eval-split")
	case c.EarlyStoppingThreshold > 0 && c.EarlyStoppingPatience == 0:
		return misusef("--early-stopping-threshold needs --early-stopping-patience")
	case c.WarmupSteps > 0 && c.WarmupRatio > 0:
		return misusef("got --warmup-steps and --warmup-ratio, want one of them")
	}
	return nil
}

// savesEvaluations reports whether some evaluations have a checkpoint, and no checkpoint lies
// between evaluations.
func (c *job) savesEvaluations() bool {
	return c.SaveSteps == 0 && c.EvalSteps == 0 || c.SaveSteps > 0 && c.EvalSteps > 0 && c.SaveSteps%c.EvalSteps == 0
}

// resumesDir reports whether --resume names a checkpoint.
func (c *job) resumesDir() bool { return c.Resume != "auto" && c.Resume != "never" }

// checkResume returns an error with a way out if --resume names a folder without a checkpoint.
func (c *job) checkResume() error {
	if !c.resumesDir() {
		return nil
	}
	_, err := os.Stat(filepath.Join(c.Resume, "trainer_state.json"))
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	latest, err := train.LatestCheckpoint(c.Resume)
	if named, _ := filepath.Match(checkpointNames, filepath.Base(latest)); err == nil && named {
		return misusef("--resume %s: got a folder of checkpoints, want one of them, such as --resume %s; --output %s with --resume auto takes the last one", c.Resume, latest, c.Resume)
	}
	return misusef("--resume %s: got no checkpoint there, want a folder checkpoint-N of a run; --resume auto takes the last one in --output, or starts again", c.Resume)
}

// stopping returns the callbacks that end a run early.
func (c *job) stopping() []train.Callback {
	if c.EarlyStoppingPatience == 0 {
		return nil
	}
	return []train.Callback{&train.EarlyStopping{Patience: c.EarlyStoppingPatience, Threshold: c.EarlyStoppingThreshold,
		Metric: c.MetricForBest, GreaterIsBetter: c.GreaterIsBetter}}
}

// undecayed matches, in lower case, names of parameters that transformers' Trainer excludes from
// weight decay.
var undecayed = regexp.MustCompile(`bias|layernorm|rmsnorm|(^|\.)norm(\.|$)|_norm(\.|$)`)

// decayOf returns a function that reports whether weight decay applies to a parameter. As in
// transformers' Trainer, it applies to all parameters except biases and norms. Norms with other
// names are excluded too.
func decayOf(root *meta.Module) func(name string) bool {
	norms := map[string]bool{}
	for path, m := range root.Walk() {
		norms[path] = m.Kind == meta.KindNorm
	}
	return func(name string) bool {
		if undecayed.MatchString(strings.ToLower(name)) {
			return false
		}
		for at, c := range name {
			if c == '.' && norms[name[:at]] {
				return false
			}
		}
		return true
	}
}

// descent returns the optimizer, without parameters yet.
func (s *student) descent() (*optim.Descent, error) {
	rate, decay := s.rate(), s.WeightDecay
	adam := optim.AdamOptions{LR: rate, WeightDecay: decay, Beta1: s.AdamBeta1, Beta2: s.AdamBeta2, Eps: s.AdamEpsilon}
	switch s.Optimizer {
	case "adam":
		return optim.NewAdam(nil, adam)
	case "sgd":
		return optim.NewSGD(nil, optim.SGDOptions{LR: rate, WeightDecay: decay, Momentum: s.Momentum})
	case "adagrad":
		return optim.NewAdagrad(nil, optim.AdagradOptions{LR: rate, WeightDecay: decay})
	case "adafactor":
		return optim.NewAdafactor(nil, optim.AdafactorOptions{LR: rate, WeightDecay: decay})
	case "muon":
		return optim.NewMuon(nil, optim.MuonOptions{LR: rate, WeightDecay: decay, Momentum: s.Momentum, MatchRMS: true, Beta1: s.AdamBeta1, Beta2: s.AdamBeta2, AdamEps: s.AdamEpsilon})
	case "adamw8bit":
		return optim.NewAdamW8bit(nil, adam)
	case "rmsprop":
		return optim.NewRMSprop(nil, optim.RMSpropOptions{LR: rate, WeightDecay: decay, Momentum: s.Momentum})
	}
	return optim.NewAdamW(nil, adam)
}
