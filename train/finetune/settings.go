package finetune

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/filehash"
	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/train"
)

// runFile is the file in the output folder with the settings of the run.
const runFile = "train_run.json"

// settings are the options that determine the weights of a run. A run can resume only with the same
// settings.
type settings struct {
	Model          string    `json:"model"`
	Data           []string  `json:"data_sha256"`
	Pack           bool      `json:"pack"`
	LearnPrompt    bool      `json:"learn_prompt"`
	LastAnswer     bool      `json:"last_answer,omitempty"`
	Sequence       int       `json:"sequence"`
	Batch          int       `json:"batch"`
	Accumulation   int       `json:"gradient_accumulation_steps"`
	Processes      int       `json:"num_processes"`
	Epochs         float64   `json:"epochs"`
	MaxSteps       int       `json:"max_steps"`
	MaxGradNorm    float64   `json:"max_grad_norm"`
	LearningRate   float64   `json:"learning_rate"`
	Scheduler      string    `json:"lr_scheduler"`
	WarmupSteps    int       `json:"warmup_steps"`
	WarmupRatio    float64   `json:"warmup_ratio"`
	WeightDecay    float64   `json:"weight_decay"`
	Seed           uint64    `json:"seed"`
	MixedPrecision string    `json:"mixed_precision"`
	LoRA           string    `json:"lora"`
	Plugin         string    `json:"plugin,omitempty"` // empty for ddp, as in files of older versions
	Method         string    `json:"method,omitempty"` // empty for sft
	Beta           float64   `json:"beta,omitempty"`
	LossType       string    `json:"loss_type,omitempty"`
	LabelSmoothing float64   `json:"label_smoothing,omitempty"`
	ReferenceFree  bool      `json:"reference_free,omitempty"`
	Weights        []float64 `json:"weights,omitempty"`   // of desirable and undesirable answers
	Optimizer      []any     `json:"optimizer,omitempty"` // its name and numbers; empty for AdamW with its defaults
	InOrder        bool      `json:"in_order,omitempty"`  // --no-shuffle
	ScheduleKwargs string    `json:"lr_scheduler_kwargs,omitempty"`
	DataWeights    []float64 `json:"data_weights,omitempty"`
	Quantize       string    `json:"quantize,omitempty"`
	Freeze         []string  `json:"freeze,omitempty"`
	NEFTune        float64   `json:"neftune_noise_alpha,omitempty"`
	// More has the options with a tag "setting" whose values differ from their defaults.
	More map[string]any `json:"more,omitempty"`
}

func (j *job) settings() (settings, error) {
	s := settings{Pack: j.Pack, LearnPrompt: j.LearnPrompt, LastAnswer: j.LastAnswer, Sequence: j.Sequence, Batch: j.Batch,
		Accumulation: j.GradientAccumulationSteps, Processes: j.ranks, Epochs: j.Epochs, MaxSteps: j.MaxSteps, MaxGradNorm: j.MaxGradNorm,
		LearningRate: j.rate(), Scheduler: j.LRScheduler, WarmupSteps: int(j.WarmupSteps), WarmupRatio: j.WarmupRatio, WeightDecay: j.WeightDecay,
		Seed: j.Seed, MixedPrecision: j.MixedPrecision, LoRA: j.LoRA, LabelSmoothing: j.LabelSmoothing, InOrder: !j.Shuffle,
		ScheduleKwargs: j.LRSchedulerKwargs, DataWeights: j.DataWeights, Quantize: j.Quantize, Freeze: j.Freeze, NEFTune: j.NeftuneNoiseAlpha}
	if j.Method != "sft" {
		s.Method, s.Beta, s.LossType, s.ReferenceFree = j.Method, j.beta(), j.LossType, j.ReferenceFree
	}
	if now := []any{j.Optimizer, j.AdamBeta1, j.AdamBeta2, j.AdamEpsilon, j.Momentum}; !slices.Equal(now, []any{"adamw", 0.9, 0.999, 1e-8, 0.0}) {
		s.Optimizer = now
	}
	if j.Method == "kto" {
		s.Weights = []float64{j.DesirableWeight, j.UndesirableWeight}
	}
	if j.Plugin != "ddp" {
		s.Plugin = j.Plugin
	}
	s.More = j.more()
	var err error
	if s.Model, err = filepath.Abs(j.model); err != nil {
		return s, err
	}
	for _, path := range j.files {
		sum, err := filehash.SHA256(path)
		if err != nil {
			return s, misuse(err)
		}
		s.Data = append(s.Data, sum)
	}
	return s, nil
}

// more returns the options with a tag "setting" whose values differ from their defaults, as JSON
// decodes them.
func (j *job) more() map[string]any {
	all, usual := map[string]any{}, reflect.ValueOf(Defaults())
	for field, v := range reflect.ValueOf(j.Options).Elem().Fields() {
		name := field.Tag.Get("setting")
		if name == "" || reflect.DeepEqual(v.Interface(), usual.FieldByIndex(field.Index).Interface()) {
			continue
		}
		b, err := json.Marshal(v.Interface())
		var as any
		if err == nil && json.Unmarshal(b, &as) == nil {
			all[name] = as
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// settle encodes the settings of a new run for claim, or compares those of a resumed one.
func (j *job) settle(goesOn bool) error {
	now, err := j.settings()
	if err != nil {
		return err
	}
	path := filepath.Join(j.Output, runFile)
	if goesOn {
		b, err := smallfile.Read(path, smallfile.Config)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil {
			var was settings
			if err := json.Unmarshal(b, &was); err != nil {
				return fmt.Errorf("%s: %w; remove the file to resume without comparing settings", path, err)
			}
			if names := different(was, now); len(names) > 0 {
				hint := "use --resume never to start again"
				if latest, err := train.LatestCheckpoint(j.Output); err == nil {
					hint += ", or --resume " + latest + " to continue with these settings"
				}
				return misusef("the checkpoints in %s belong to a run with another %s: %s", j.Output, strings.Join(names, ", "), hint)
			}
			return nil
		}
	}
	b, err := json.MarshalIndent(now, "", "  ")
	j.fresh = append(b, '\n')
	return err
}

// different describes the settings that differ.
func different(a, b settings) []string {
	var names []string
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		was, now := x.Field(i).Interface(), y.Field(i).Interface()
		if reflect.DeepEqual(was, now) {
			continue
		}
		name, _, _ := strings.Cut(x.Type().Field(i).Tag.Get("json"), ",")
		switch x.Field(i).Kind() {
		case reflect.Slice, reflect.Map:
			names = append(names, name)
		case reflect.String:
			names = append(names, fmt.Sprintf("%s (then %q, now %q)", name, was, now))
		default:
			names = append(names, fmt.Sprintf("%s (then %v, now %v)", name, was, now))
		}
	}
	slices.Sort(names)
	return names
}

// tracked returns the settings that trackers show.
func (s *student) tracked() map[string]any {
	all := map[string]any{}
	now, err := s.settings()
	if err != nil {
		return all
	}
	b, err := json.Marshal(now)
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return map[string]any{}
	}
	all["data"] = strings.Join(s.files, " ")
	delete(all, "data_sha256")
	all["model"] = filepath.Base(s.job.model)
	for name, v := range all {
		switch v.(type) {
		case []any, map[string]any: // types that trackers do not support
			if b, err := json.Marshal(v); err == nil {
				all[name] = string(b)
			}
		}
	}
	return all
}
