package finetune

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/heftai/heft/train/internal/preference"
)

// Options configure a run. Names, values and defaults are those of the flags of train run: Batch is
// --batch. Each field's tag describes its flag. The tag methods lists the methods that have an
// option, and the tag setting names the option in the settings of a run. Start from [Defaults],
// because the zero value of some fields is an error.
type Options struct {
	// The method, and what its loss is.
	Method            string  `help:"Train by sft, dpo or orpo (pairs), kto (judged answers), grpo or reward." enum:"sft,dpo,orpo,kto,grpo,reward" default:"sft"`
	Beta              float64 `help:"Set beta: a higher one stays closer to the reference; -1 is 0.1, with grpo 0." default:"-1" methods:"dpo,orpo,kto,grpo"`
	LossType          string  `help:"Set the loss: sigmoid, hinge, ipo, robust of dpo; dapo, grpo, bnpo, dr_grpo." enum:"sigmoid,hinge,ipo,robust,dapo,grpo,bnpo,dr_grpo," default:"" methods:"dpo,grpo"`
	LabelSmoothing    float64 `help:"Smooth labels by this fraction; with dpo, the fraction of wrong pairs." default:"0" methods:"sft,dpo" aliases:"label-smoothing-factor"`
	ReferenceFree     bool    `help:"Run dpo without the reference model." methods:"dpo"`
	DesirableWeight   float64 `help:"Weight kto's losses of desirable answers." default:"1" methods:"kto"`
	UndesirableWeight float64 `help:"Weight kto's losses of undesirable answers." default:"1" methods:"kto"`

	CenterRewardsCoefficient float64 `help:"Keep the rewards of a reward model near 0 with this weight." default:"0" methods:"reward" setting:"center_rewards_coefficient"`

	// Completions and their rewards, of grpo.
	NumGenerations      int      `help:"Generate this many completions of each prompt." default:"8" methods:"grpo" setting:"num_generations"`
	MaxCompletionLength int      `help:"Cut completions to this many tokens." default:"256" methods:"grpo" setting:"max_completion_length"`
	Temperature         float64  `help:"Sample at this temperature." default:"1" methods:"grpo" setting:"temperature"`
	TopP                float64  `help:"Sample from the most likely tokens up to this total probability." default:"1" methods:"grpo" setting:"top_p"`
	TopK                int      `help:"Sample from this many most likely tokens; 0 is all." default:"0" methods:"grpo" setting:"top_k"`
	RewardCommand       string   `help:"Reward with this program: reads a JSON line per completion, writes a number." placeholder:"PROGRAM ARG…" methods:"grpo" setting:"reward_command"`
	RewardTimeout       float64  `help:"Stop if --reward-command takes longer than this many seconds per line." default:"60" methods:"grpo"`
	RewardRules         []string `name:"reward" help:"Reward by equals=, contains= or number=FIELD, or regex=PATTERN; may repeat." sep:"none" placeholder:"[WEIGHT*]RULE" methods:"grpo" setting:"reward"`
	RewardWeights       []string `help:"Weight the rewards with these names, such as accuracy=1,format=0.5." placeholder:"NAME=WEIGHT" methods:"grpo" setting:"reward_weights"`
	ScaleRewards        string   `help:"Divide advantages by the reward deviation of a group, a batch, or none." enum:"group,batch,none" default:"group" methods:"grpo" setting:"scale_rewards"`
	NumIterations       int      `help:"Do this many steps on the same completions." default:"1" methods:"grpo" setting:"num_iterations"`
	Epsilon             float64  `help:"Clip the ratio of new to old probabilities to 1 ± this." default:"0.2" methods:"grpo" setting:"epsilon"`
	EpsilonHigh         float64  `help:"Clip the ratio at 1 + this instead; 0 is --epsilon." default:"0" methods:"grpo" setting:"epsilon_high"`

	// The data.
	DataWeights []float64 `help:"Use each --data file this many times per epoch, such as 1,0.5,3." placeholder:"N"`
	EvalData    []string  `help:"Evaluate on this file; NAME=FILE has metrics eval_NAME_loss; may repeat." sep:"none" placeholder:"FILE.jsonl"`
	EvalSplit   float64   `help:"Evaluate on this fraction of each --data file and do not train on it." default:"0" setting:"eval_split"`
	Sequence    int       `help:"Cut sequences to this many tokens." default:"512"`
	Pack        bool      `help:"Pack texts into full sequences, isolated from each other, for speed." methods:"sft"`
	LearnPrompt bool      `help:"Also train on prompts and user messages." methods:"sft"`
	LastAnswer  bool      `help:"Train only on the last answer of a conversation." methods:"sft"`
	Shuffle     bool      `help:"Shuffle the data in each epoch." default:"true" negatable:""`
	DataCache   string    `help:"Cache tokenised data in this folder; auto is the user's cache, none is memory." default:"auto" placeholder:"auto|none|DIR"`
	StrictData  bool      `help:"Stop at a record that cannot be used, instead of skipping it."`

	// The length of the run and its rate.
	Epochs                    float64 `help:"Train on the data this many times." default:"3"`
	MaxSteps                  int     `help:"Train this many optimizer steps instead of --epochs." default:"0"`
	Batch                     int     `help:"Set the sequences per batch, on each rank." default:"8" aliases:"batch-size"`
	GradientAccumulationSteps int     `help:"Accumulate the gradients of this many batches per step." default:"1"`
	MaxGradNorm               float64 `help:"Clip the gradient norm to this; 0 does not clip." default:"1"`
	LearningRate              float64 `help:"Set the learning rate; 0 is 5e-5, with --lora 2e-4 (dpo, grpo: 1e-6, 1e-5)." default:"0" aliases:"lr"`
	LRScheduler               string  `name:"lr-scheduler" help:"Schedule the rate: linear, cosine, constant_with_warmup, …, as transformers." default:"linear"`
	LRSchedulerKwargs         string  `name:"lr-scheduler-kwargs" help:"Set options of the schedule in JSON, such as {\"num_cycles\": 2}." default:"" placeholder:"JSON"`
	WarmupSteps               float64 `help:"Warm up the rate for this many steps; below 1, this fraction of all steps." default:"0"`
	WarmupRatio               float64 `help:"Warm up the rate for this fraction of all steps." default:"0"`
	WeightDecay               float64 `help:"Set AdamW's weight decay. Biases and norms do not decay." default:"0"`
	Seed                      uint64  `help:"Seed the order of the data and all other random numbers." default:"42"`

	// The optimizer, and with which weights the run ends.
	Optimizer   string  `help:"Step with adamw, adam, sgd, adagrad, rmsprop, muon, adamw8bit or adafactor." default:"adamw" aliases:"optim"`
	AdamBeta1   float64 `name:"adam-beta1" help:"Set beta1 of adamw, adamw8bit and adam, and of muon for vectors." default:"0.9"`
	AdamBeta2   float64 `name:"adam-beta2" help:"Set beta2 of adamw, adamw8bit and adam, and of muon for vectors." default:"0.999"`
	AdamEpsilon float64 `help:"Set epsilon of adamw, adamw8bit and adam, and of muon for vectors." default:"1e-8"`
	Momentum    float64 `help:"Set the momentum of sgd, rmsprop and muon, where 0 is 0.95." default:"0"`

	LoadBest               bool    `help:"Write the weights of the best evaluation instead of the last ones." aliases:"load-best-model-at-end"`
	MetricForBest          string  `help:"Rank evaluations by this metric, such as loss or rewards/margins." default:"loss" aliases:"metric-for-best-model"`
	GreaterIsBetter        bool    `help:"Treat a higher --metric-for-best as better."`
	EarlyStoppingPatience  int     `help:"Stop after this many evaluations without a better metric; 0 never." default:"0"`
	EarlyStoppingThreshold float64 `help:"Count a change of the metric as an improvement only above this." default:"0"`

	// Which weights train.
	LoRA              string   `name:"lora" help:"Train a LoRA adapter, such as r=16,alpha=32, or continue one: from=DIR." placeholder:"r=N,…"`
	DoRA              bool     `name:"dora" help:"Use DoRA: train the lengths of weight rows separately, with --lora." setting:"dora"`
	ModulesToSave     []string `name:"modules-to-save" help:"Also train these whole modules with --lora, such as lm_head,embed_tokens." placeholder:"NAME" setting:"modules_to_save"`
	Merge             bool     `help:"Write the whole model with the --lora adapter merged into it."`
	Quantize          string   `help:"Keep the weights under --lora in memory as q8_0, q4_0 or nf4 (QLoRA)." enum:"q8_0,q4_0,nf4," default:"" placeholder:"FORMAT"`
	Freeze            []string `help:"Freeze parameters whose path matches this regular expression; may repeat." sep:"none" placeholder:"PATTERN"`
	NeftuneNoiseAlpha float64  `help:"Add NEFTune's noise to embeddings in training; 0 adds none." default:"0" methods:"sft"`

	// The files that are written, and how the machine is used.
	Output         string   `help:"Write checkpoints and the trained model to this folder." required:"" placeholder:"DIR"`
	Dtype          string   `help:"Write weights in this dtype; auto is the dtype of the model." enum:"auto,float32,bfloat16,float16" default:"auto"`
	MixedPrecision string   `help:"Set the precision of products: no (float32), bf16, or fp16 with a scaled loss." enum:"no,bf16,fp16," default:""`
	Recompute      string   `help:"Recompute activations to save memory: on, off, or auto above 2 GiB per batch." enum:"auto,on,off" default:"auto"`
	NumProcesses   int      `help:"Train with this many ranks in this process, each on its own batches; 0 is 1." default:"0"`
	Plugin         string   `help:"Share the work between ranks: ddp, zero1, zero2 or gemini." enum:"ddp,zero1,zero2,gemini" default:"ddp"`
	Threads        int      `help:"Set the compute threads; 0 uses all processors." default:"0"`
	MaxMemory      string   `help:"Limit memory with --lora or --plugin gemini: cpu=30GiB; use the disk beyond." placeholder:"DEVICE=SIZE,…"`
	SaveSteps      int      `help:"Save every N steps; 0 at the end of each epoch, -1 never." default:"0"`
	SaveTotalLimit int      `help:"Keep this many checkpoints; 0 keeps all." default:"2"`
	EvalSteps      int      `help:"Evaluate every N steps; 0 at the end of each epoch, -1 never." default:"0"`
	LogSteps       int      `help:"Log every N steps; 0 at the end of each epoch, -1 never." default:"10"`
	LogWith        []string `help:"Write metrics: tensorboard, jsonl, csv, curve (a PNG of the loss), or all." placeholder:"NAME"`
	LoggingDir     string   `help:"Write metrics to this folder instead of --output." placeholder:"DIR"`
	Resume         string   `help:"Resume from the last checkpoint in --output (auto), from DIR, or never." default:"auto" placeholder:"auto|never|DIR"`

	// Reward rewards completions with --method grpo. RewardFuncs do so under names, which
	// RewardWeights may weight. Completions get the sum of these, of RewardCommand and of
	// RewardRules. Each rank makes one call at a time.
	Reward      RewardFunc            `kong:"-" methods:"grpo"`
	RewardFuncs map[string]RewardFunc `kong:"-" methods:"grpo"`
	// BaseModel is the name of the base model in an adapter's config. Empty means the path of the
	// model.
	BaseModel string `kong:"-"`
	// Log receives the messages of the run. Nil discards them.
	Log *slog.Logger `kong:"-"`
	// Progress receives the progress line, and at the end the curve of the loss. Nil shows none.
	Progress io.Writer `kong:"-"`
	// Started is called once, after the data is read and before the first step. It may be nil.
	Started func() `kong:"-"`
	// Interrupt ends the run after its current batch when it is closed, or after the current step if
	// the base streams. The run first writes a checkpoint of its last step, unless SaveSteps is -1, and
	// the same call resumes it. It may be nil.
	Interrupt <-chan struct{} `kong:"-"`
}

// Defaults returns the options of train run without flags. Output is empty and must be set.
func Defaults() Options {
	var o Options
	for field, v := range reflect.ValueOf(&o).Elem().Fields() {
		text, ok := field.Tag.Lookup("default")
		if !ok || text == "" {
			continue
		}
		if err := set(v, text); err != nil {
			panic(fmt.Sprintf("finetune: the default of %s: %v", field.Name, err)) // a test calls Defaults
		}
	}
	return o
}

// set parses the default value in a tag.
func set(v reflect.Value, text string) error {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		v.SetBool(b)
		return err
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
		return err
	case reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		v.SetUint(n)
		return err
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		v.SetFloat(f)
		return err
	default:
		return fmt.Errorf("got a %v, want a number, a text or a bool", v.Kind())
	}
	return nil
}

// checkNames rejects values that are not in the list of their option's tag.
func (o *Options) checkNames() error {
	for field, v := range reflect.ValueOf(o).Elem().Fields() {
		list, ok := field.Tag.Lookup("enum")
		if !ok || slices.Contains(strings.Split(list, ","), v.String()) {
			continue
		}
		return misusef("got %s %q, want one of %s", flag(field), v.String(), strings.ReplaceAll(strings.Trim(list, ","), ",", ", "))
	}
	return nil
}

// flag returns the name of an option's flag.
func flag(field reflect.StructField) string {
	if name := field.Tag.Get("name"); name != "" {
		return "--" + name
	}
	var b strings.Builder
	for i, r := range field.Name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('-')
		}
		b.WriteRune(r)
	}
	return "--" + strings.ToLower(b.String())
}

// UsageError reports options that are invalid, or that do not fit together, the model or the data.
type UsageError struct{ Err error }

// Error returns a message that names the flag at fault.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

func misuse(err error) error { return &UsageError{err} }

// misused adds the flag to an error about a setting of a loss.
func misused(err error) error {
	var wrong *preference.SettingError
	if !errors.As(err, &wrong) {
		return err
	}
	field, ok := reflect.TypeFor[Options]().FieldByName(wrong.Setting)
	if !ok {
		return misuse(err)
	}
	return misusef("got %s %v, want %s", flag(field), wrong.Got, wrong.Want)
}

func misusef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }
