// Package progress tracks the progress of a training run. A [Goal] is the requested length, and a
// [Length] is that length in steps. A [State] is the position of a run with its measurements, and
// [Intervals] determine when to log, evaluate and save. The state is stored as trainer_state.json
// in a checkpoint.
//
// The package knows no model, no ranks and no weights.
package progress

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/heftai/heft/train/internal/evaluation"
)

// State is train.TrainerState, which documents the fields.
type State struct {
	BestGlobalStep      *int                       `json:"best_global_step"`
	BestMetric          *float64                   `json:"best_metric"`
	BestModelCheckpoint *string                    `json:"best_model_checkpoint"`
	Epoch               float64                    `json:"epoch"`
	EvalSteps           int                        `json:"eval_steps"`
	GlobalStep          int                        `json:"global_step"`
	IsHyperParamSearch  bool                       `json:"is_hyper_param_search"`
	IsLocalProcessZero  bool                       `json:"is_local_process_zero"`
	IsWorldProcessZero  bool                       `json:"is_world_process_zero"`
	LogHistory          []map[string]any           `json:"log_history"`
	LoggingSteps        int                        `json:"logging_steps"`
	MaxSteps            int                        `json:"max_steps"`
	NumInputTokensSeen  int                        `json:"num_input_tokens_seen"`
	NumTrainEpochs      int                        `json:"num_train_epochs"`
	SaveSteps           int                        `json:"save_steps"`
	StatefulCallbacks   map[string]json.RawMessage `json:"stateful_callbacks"`
	TotalFlos           float64                    `json:"total_flos"`
	TrainBatchSize      int                        `json:"train_batch_size"`
	TrialName           *string                    `json:"trial_name"`
	TrialParams         map[string]any             `json:"trial_params"`
}

// Continue copies the position and the measurements of a saved state to s. The length, the
// intervals and the rank of s do not change.
func (s *State) Continue(saved *State) {
	now := *s
	*s = *saved
	s.MaxSteps, s.NumTrainEpochs, s.TrainBatchSize = now.MaxSteps, now.NumTrainEpochs, now.TrainBatchSize
	s.EvalSteps, s.SaveSteps, s.LoggingSteps = now.EvalSteps, now.SaveSteps, now.LoggingSteps
	s.IsLocalProcessZero, s.IsWorldProcessZero = now.IsLocalProcessZero, now.IsWorldProcessZero
}

// Finished reports whether all steps are done.
func (s *State) Finished() bool { return s.MaxSteps > 0 && s.GlobalStep >= s.MaxSteps }

// Intervals are the numbers of steps between logs, evaluations and checkpoints. 0 means at the
// end of each epoch, and a negative number never.
type Intervals struct {
	Log, Eval, Save int
	// First logs the first step too.
	First bool
}

// LogDue reports whether to log the step that follows step steps. It returns false if logs are
// due at the end of an epoch.
func (v *Intervals) LogDue(step int) bool {
	return v.Log > 0 && (step+1)%v.Log == 0 || step == 0 && v.First
}

// Best determines which evaluation is the best one.
type Best struct {
	// Metric ranks evaluations. If it is empty, the loss does.
	Metric  string
	Greater bool // a higher Metric is better
	// Required makes an evaluation without Metric an error, even if Metric is empty.
	Required bool
}

// Ranked returns the steps of s that were evaluated, the best first. Of equal ones the later is the
// better one.
func (b *Best) Ranked(s *State) []int {
	values := map[int]float64{}
	for _, entry := range s.LogHistory {
		v, ok := entry[evaluation.MetricName(b.Metric)].(float64)
		if !ok || math.IsNaN(v) {
			continue
		}
		switch step := entry["step"].(type) {
		case int:
			values[step] = v
		case float64: // of a history that was read from a file
			values[int(step)] = v
		}
	}
	return slices.SortedFunc(maps.Keys(values), func(x, y int) int {
		if b.Greater {
			return cmp.Or(cmp.Compare(values[y], values[x]), y-x)
		}
		return cmp.Or(cmp.Compare(values[x], values[y]), y-x)
	})
}

// Judge records an evaluation in s if it is the best so far.
func (b *Best) Judge(s *State, metrics map[string]float64) error {
	v, ok := metrics[evaluation.MetricName(b.Metric)]
	if !ok {
		if b.Metric == "" && !b.Required {
			return nil
		}
		return fmt.Errorf("train: trainer: the metric %q for the best checkpoint was not measured: there are %s",
			b.Metric, strings.Join(slices.Sorted(maps.Keys(metrics)), ", "))
	}
	if math.IsNaN(v) {
		return nil
	}
	if s.BestMetric == nil || b.Greater && v > *s.BestMetric || !b.Greater && v < *s.BestMetric {
		step := s.GlobalStep
		s.BestMetric, s.BestGlobalStep = &v, &step
	}
	return nil
}

// Losses sums losses since the last log and since the start.
type Losses struct {
	recent, total float64
	steps, all    int
}

// Restart resets all sums.
func (l *Losses) Restart() { *l = Losses{} }

// Add adds the loss of a step.
func (l *Losses) Add(loss float64) {
	l.recent, l.total = l.recent+loss, l.total+loss
	l.steps, l.all = l.steps+1, l.all+1
}

// Pending reports whether losses were added since the last call of Recent.
func (l *Losses) Pending() bool { return l.steps > 0 }

// Recent returns the mean loss since its last call.
func (l *Losses) Recent() float64 {
	m := l.recent / float64(l.steps)
	l.recent, l.steps = 0, 0
	return m
}

// Mean returns the mean loss since the start, or 0 if there were no steps.
func (l *Losses) Mean() float64 {
	if l.all == 0 {
		return 0
	}
	return l.total / float64(l.all)
}
