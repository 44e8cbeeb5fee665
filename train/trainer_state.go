package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/internal/checkpoint"
	"github.com/heftai/heft/train/internal/modelfiles"
	"github.com/heftai/heft/train/track"
)

// trainerStateFile names the trainer's file in a checkpoint.
const trainerStateFile = "trainer_state.json"

// LogEntry holds the values logged at a step, with "step" and "epoch".
type LogEntry map[string]any

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

// checkpointName returns the name of the checkpoint folder of a step.
func checkpointName(step int) string { return "checkpoint-" + strconv.Itoa(step) }

// Save writes a checkpoint with the trainer's state to OutputDir/checkpoint-STEP, and then removes
// old checkpoints beyond SaveTotalLimit. All ranks must call it.
func (t *Trainer[B]) Save(ctx context.Context) error {
	s := &t.state
	if t.args.OutputDir == "" {
		return errors.New("train: trainer: no OutputDir to save to")
	}
	dir := filepath.Join(t.args.OutputDir, checkpointName(s.GlobalStep))
	if s.BestGlobalStep != nil {
		best := filepath.Join(t.args.OutputDir, checkpointName(*s.BestGlobalStep))
		if _, err := os.Stat(best); err == nil || best == dir {
			s.BestModelCheckpoint = &best
		}
	}
	if err := t.saveCallbacks(); err != nil {
		return err
	}
	t.acc.RegisterSaveStatePreHook(t.writeState)
	defer func() { t.acc.saveHooks = t.acc.saveHooks[:len(t.acc.saveHooks)-1] }()
	if _, err := t.acc.SaveState(ctx, dir); err != nil {
		return err
	}
	if err := t.acc.together(ctx, t.acc.onMain(t.rotate)); err != nil {
		return fmt.Errorf("train: trainer: %w", err)
	}
	return t.trigger(ctx, Moment{Event: Saved, Folder: dir})
}

// writeState adds the trainer's state and, with From, the model's config and tokenizer to a
// checkpoint.
func (t *Trainer[B]) writeState(dir string) error {
	if !t.acc.IsMainProcess() {
		return nil
	}
	s := t.state
	s.LogHistory = make([]LogEntry, len(t.state.LogHistory))
	for i, entry := range t.state.LogHistory {
		s.LogHistory[i] = LogEntry(track.JSONValues(track.Values(entry)))
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, trainerStateFile), append(b, '\n'), 0o666); err != nil || t.c.From == "" {
		return err
	}
	return modelfiles.CopyBeside(dir, t.c.From, meta.Float32)
}

// rotate removes old checkpoints, but never the best one.
func (t *Trainer[B]) rotate() error {
	limit := t.args.SaveTotalLimit
	if limit < 1 {
		return nil
	}
	names, err := checkpoints(t.args.OutputDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if len(names) <= limit {
			return nil
		}
		dir := filepath.Join(t.args.OutputDir, name)
		best := t.state.BestModelCheckpoint
		if best != nil && *best == dir || name == checkpointName(t.state.GlobalStep) {
			continue
		}
		if err := checkpoint.Remove(dir); err != nil {
			return err
		}
		names = names[:len(names)-1]
	}
	return nil
}

// checkpoints lists the checkpoint folders, lowest step first.
func checkpoints(dir string) ([]string, error) {
	all, err := checkpoint.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, name := range all {
		if strings.HasPrefix(name, "checkpoint-") {
			names = append(names, name)
		}
	}
	return names, err
}

// resume continues from a checkpoint if the arguments say so.
func (t *Trainer[B]) resume(ctx context.Context) error {
	dir := t.args.ResumeFrom
	if dir == "" && t.args.Resume && t.args.OutputDir != "" {
		names, err := checkpoints(t.args.OutputDir)
		if err != nil {
			return fmt.Errorf("train: trainer: %w", err)
		}
		if len(names) > 0 {
			dir = filepath.Join(t.args.OutputDir, names[len(names)-1])
		}
	}
	if dir == "" {
		return nil
	}
	state, err := readTrainerState(dir)
	if err == nil && state.MaxSteps != t.state.MaxSteps {
		t.acc.Logger().WarnContext(ctx, "the checkpoint is of a run of another length: its schedule was made for that",
			"checkpoint_max_steps", state.MaxSteps, "max_steps", t.state.MaxSteps)
	}
	if err = t.acc.together(ctx, err); err != nil {
		return err
	}
	if err := t.acc.LoadState(ctx, dir); err != nil {
		return err
	}
	now := t.state
	t.state = *state
	t.state.MaxSteps, t.state.NumTrainEpochs, t.state.TrainBatchSize = now.MaxSteps, now.NumTrainEpochs, now.TrainBatchSize
	t.state.EvalSteps, t.state.SaveSteps, t.state.LoggingSteps = now.EvalSteps, now.SaveSteps, now.LoggingSteps
	t.state.IsLocalProcessZero, t.state.IsWorldProcessZero = now.IsLocalProcessZero, now.IsWorldProcessZero
	t.resumed = true
	return t.loadCallbacks()
}

// readTrainerState reads the trainer's state from a checkpoint.
func readTrainerState(dir string) (*TrainerState, error) {
	b, err := smallfile.Read(filepath.Join(dir, trainerStateFile), smallfile.State)
	if err != nil {
		return nil, fmt.Errorf("train: trainer: %w", err)
	}
	var s TrainerState
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("train: trainer: %s: %w", filepath.Join(dir, trainerStateFile), err)
	}
	if s.GlobalStep < 0 {
		return nil, fmt.Errorf("train: trainer: %s: global_step is %d", filepath.Join(dir, trainerStateFile), s.GlobalStep)
	}
	return &s, nil
}

// loadBest loads the weights of the best checkpoint.
func (t *Trainer[B]) loadBest(ctx context.Context) error {
	best := t.state.BestModelCheckpoint
	if !t.args.LoadBestAtEnd {
		return nil
	}
	if best == nil {
		t.acc.Logger().WarnContext(ctx, "there is no checkpoint of the best evaluation: the weights are the last ones")
		return nil
	}
	r := &checkpoint.Reading{Dir: *best}
	err := t.acc.readModules(r)
	if err = t.acc.together(ctx, err); err != nil {
		return fmt.Errorf("train: trainer: the best checkpoint: %w", err)
	}
	if err := r.Apply(); err != nil {
		return fmt.Errorf("train: trainer: the best checkpoint: %w", err)
	}
	return nil
}
