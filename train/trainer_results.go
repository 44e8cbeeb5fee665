package train

import (
	"encoding/json"
	"time"

	"github.com/heftai/heft/train/internal/evaluation"
	"github.com/heftai/heft/train/tensor"
)

// StepResult is the result of a step on this rank.
type StepResult struct {
	// Loss is this rank's loss of the batch. For Updates it is the mean over the window on all
	// ranks.
	Loss float64
	// Synced says that the step ended a window. The optimizer stepped, unless it skipped an
	// overflow (see [Accelerator.OptimizerStepWasSkipped]). If false, the norms of gradients are 0.
	Synced                            bool
	GradNormPreClip, GradNormPostClip float64
	// WeightNorm is measured after the step. For Updates it is 0 unless the step is logged.
	WeightNorm float64
	// LR is the learning rate of the first group: for Batches that of the next step, for Updates
	// that of this one.
	LR float64
	// GlobalStep is the number of steps before this one.
	GlobalStep int
	// Items is the number that TrainerConfig.Items counted on all ranks, or 0 without it.
	Items int
}

// TrainResult is the result of a run.
type TrainResult struct {
	GlobalStep int
	// Loss is the mean over the steps of this call.
	Loss    float64
	Runtime time.Duration
	// Metrics are those of the last evaluation, if there was one; with LoadBestAtEnd, those of the evaluation whose
	// weights the run ends with.
	Metrics map[string]float64
	// BestLost, with LoadBestAtEnd, says that the best checkpoint could not be read, why, and whose
	// weights the run ends with: those of the next best evaluation that has a readable checkpoint, or
	// the last ones if they are better. It is nil if the weights are the best ones.
	BestLost error
	// Interrupted reports that [TrainerConfig].Interrupted has ended the run.
	Interrupted bool
}

// LogEntry holds the values logged at a step, with "step" and "epoch".
type LogEntry = map[string]any

// TrainerState is the progress of a run and its measurements. It has the fields of transformers'
// trainer_state.json.
type TrainerState struct {
	BestGlobalStep      *int     `json:"best_global_step"`
	BestMetric          *float64 `json:"best_metric"`
	BestModelCheckpoint *string  `json:"best_model_checkpoint"`
	// Epoch is how often the run has trained on the data, with a fraction.
	Epoch     float64 `json:"epoch"`
	EvalSteps int     `json:"eval_steps"`
	// GlobalStep is the number of steps taken: optimizer steps, or batches with Batches.
	GlobalStep         int                        `json:"global_step"`
	IsHyperParamSearch bool                       `json:"is_hyper_param_search"`
	IsLocalProcessZero bool                       `json:"is_local_process_zero"`
	IsWorldProcessZero bool                       `json:"is_world_process_zero"`
	LogHistory         []LogEntry                 `json:"log_history"`
	LoggingSteps       int                        `json:"logging_steps"`
	MaxSteps           int                        `json:"max_steps"`
	NumInputTokensSeen int                        `json:"num_input_tokens_seen"`
	NumTrainEpochs     int                        `json:"num_train_epochs"`
	SaveSteps          int                        `json:"save_steps"`
	StatefulCallbacks  map[string]json.RawMessage `json:"stateful_callbacks"`
	TotalFlos          float64                    `json:"total_flos"`
	TrainBatchSize     int                        `json:"train_batch_size"`
	TrialName          *string                    `json:"trial_name"`
	TrialParams        map[string]any             `json:"trial_params"`
}

// Evaluation is the result of evaluating a batch. Lists that are not nil have one entry per sample.
type Evaluation struct {
	// Losses are summed over the items of each sample.
	Losses []float64
	// Items counts the tokens, or other items, of each sample. Nil means one per sample.
	Items []int
	// Correct counts the items of each sample that were predicted correctly. If nil, the accuracy
	// comes from Predicted and Labels.
	Correct []int
	// Predicted and Labels are the classes of each sample, or nil.
	Predicted, Labels []int
	// Sums are further values, summed over the items of each sample. Metrics have their mean over the items of a batch,
	// averaged over the batches.
	Sums map[string][]float64
}

// EvaluateLogits evaluates logits against one label per row; rows with the label
// [tensor.IgnoreIndex] do not count. Rows are split evenly between the samples: one row per sample
// for classes, one per token for texts. The label of a token is the next token: shift the labels.
func EvaluateLogits(logits *tensor.Tensor, labels []int, samples int) (Evaluation, error) {
	e, err := evaluation.Logits(logits, labels, samples)
	return Evaluation(e), err
}
