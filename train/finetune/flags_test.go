package finetune

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/gguf/gguftest"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/data"
)

// TestActivationsAreEstimated: of a llama of 1.1 billion parameters a token keeps 4.6 MiB,
// and of a mixture as much as the experts that it is sent to.
func TestActivationsAreEstimated(t *testing.T) {
	for _, c := range []struct {
		config string
		want   int64
	}{
		{`{"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
			"num_attention_heads": 32, "num_key_value_heads": 4}`, 22 * 4 * 3 * 17920},
		{`{"model_type": "mixtral", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1, "num_local_experts": 8,
			"num_experts_per_tok": 2, "num_attention_heads": 2, "num_key_value_heads": 2}`, 4 * (4*3*64 + 2*(3*64+3*64))},
	} {
		config, err := meta.ReadConfig([]byte(c.config))
		if err != nil {
			t.Fatal(err)
		}
		m, err := meta.New(config, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := activationBytes(m, false); got < c.want*9/10 || got > c.want*11/10 {
			t.Errorf("%s keeps %d bytes a token, want about %d", m.Root.Class, got, c.want)
		}
	}
}

func TestLoRAFlags(t *testing.T) {
	c, err := parseLoRA("r=4, alpha=8,dropout=0.1,rslora=false,targets=q_proj+v_proj,parameters=experts.gate_up_proj,exclude=k_proj,layers=0+2")
	if err != nil || c.R != 4 || c.Alpha != 8 || c.Dropout != 0.1 || c.RSLoRA || !slices.Equal(c.Targets, []string{"q_proj", "v_proj"}) ||
		!slices.Equal(c.Parameters, []string{"experts.gate_up_proj"}) || !slices.Equal(c.Exclude, []string{"k_proj"}) || !slices.Equal(c.Layers, []int{0, 2}) {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := parseLoRA("r=4"); err != nil || c.Alpha != 4 {
		t.Errorf("without alpha: %+v, %v", c, err)
	}
}

// TestLayersOfLoRANeedTargets: the error named layers_to_transform and target_modules, which are not Heft's.
func TestLayersOfLoRANeedTargets(t *testing.T) {
	if _, err := parseLoRA("r=2,layers=1"); err == nil || !strings.Contains(err.Error(), "layers needs targets, such as targets=q_proj+v_proj,layers=1") {
		t.Errorf("got %v, want an error that names targets", err)
	}
}

// TestAnAdapterToContinueIsNamed: from=DIR,r=4 was "stat DIR,r=4/adapter_config.json: no such file or directory".
func TestAnAdapterToContinueIsNamed(t *testing.T) {
	dir := t.TempDir()
	for s, want := range map[string]string{
		"from=" + dir:          "got no adapter there, want a folder with adapter_config.json",
		"from=" + dir + ",r=4": "got values beside from, want from=DIR alone",
	} {
		if _, err := parseLoRA(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", s, err, want)
		}
	}
}

// TestAModelThatIsNotThereIsNamed: Run made the output folder and failed with "stat nowhere".
func TestAModelThatIsNotThereIsNamed(t *testing.T) {
	o := Defaults()
	o.Output = filepath.Join(t.TempDir(), "out")
	_, err := Run(t.Context(), "nowhere", []string{"data.jsonl"}, o)
	var usage *UsageError
	if !errors.As(err, &usage) || !strings.Contains(err.Error(), "there is no model nowhere: want a folder with config.json") {
		t.Errorf("got %v, want a usage error that names the model", err)
	}
	if _, err := os.Stat(o.Output); err == nil {
		t.Error("the output folder was made")
	}
}

// TestEvaluationsWithoutANameAreNamed: for --eval-data =FILE the advice was NAME==FILE.
func TestEvaluationsWithoutANameAreNamed(t *testing.T) {
	o := Defaults()
	o.Output, o.EvalData = filepath.Join(t.TempDir(), "out"), []string{"a.jsonl", "=b.jsonl"}
	_, err := Run(t.Context(), "../../loader/demo/model", []string{"data.jsonl"}, o)
	if want := "--eval-data =b.jsonl: got no name before =, want NAME=FILE or FILE"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestAGGUFFileWithoutATokenizerIsNamed: the error was "tokenizer.json has no tokenizer.json".
func TestAGGUFFileWithoutATokenizerIsNamed(t *testing.T) {
	o := Defaults()
	o.Output, o.LoRA = filepath.Join(t.TempDir(), "out"), "r=2"
	file := filepath.Join(t.TempDir(), "data.jsonl")
	if err := os.WriteFile(file, []byte(`{"text": "a"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	model := gguftest.Unzipped(t, "../../dispatch/testdata/gguf/arcee.gguf.bz2", "arcee.gguf")
	_, err := Run(t.Context(), model, []string{file}, o)
	if err == nil || !strings.Contains(err.Error(), "arcee.gguf: got a GGUF file without a tokenizer") || strings.Contains(err.Error(), "tokenizer.json has no tokenizer.json") {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

// TestAMisspelledTargetOfLoRAIsRejected: with q_proj+v_poj only q_proj was adapted, and nothing said so.
func TestAMisspelledTargetOfLoRAIsRejected(t *testing.T) {
	config, err := meta.ReadConfigFile("../../loader/demo/model/config.json")
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"r=4,targets=q_proj+self_attn.v_proj+model.layers.1.mlp.up_proj,exclude=layers.0.self_attn.q_proj": "",
		"r=4":                       "",
		"r=4,targets=q_proj+v_poj":  `--lora: targets: the model has no module "v_poj", want some of down_proj, gate_proj, k_proj`,
		"r=4,targets=proj":          `no module "proj"`,
		"r=4,exclude=layers.9.self": "--lora: exclude: ",
	} {
		c, err := parseLoRA(flag)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkNames(c, skeleton.Root); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", flag, err, want)
		}
	}
}

// FuzzLoRA: accepted settings have a rank.
func FuzzLoRA(f *testing.F) {
	for _, s := range []string{"r=16,alpha=32", "r=4,rslora,targets=q_proj+v_proj,layers=0+1,dropout=0.1", "r=1,exclude=a,rslora=false", ",", "r=,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseLoRA(s)
		if err == nil && (c.R < 1 || c.Alpha < 0 || !strings.Contains(s, "r=")) {
			t.Errorf("%q is %+v", s, c)
		}
	})
}

// TestDataWeights: a file of weight w is w times in an epoch, the same part of it for the same seed.
func TestDataWeights(t *testing.T) {
	sets := map[string]data.Slice[int]{"a": {1, 2, 3, 4}, "b": {10, 20}, "c": {}}
	read := func(path string) (made[int], error) { return made[int]{Dataset: sets[path]}, nil }
	count := func(weights ...float64) map[int]int {
		j := &job{Options: &Options{DataWeights: weights, Seed: 3}, files: []string{"a", "b", "c"}}
		all, err := weighted(j, read)
		if err != nil {
			t.Fatal(err)
		}
		times := map[int]int{}
		for i := range all.Len() {
			v, err := all.At(i)
			if err != nil {
				t.Fatal(err)
			}
			times[v]++
		}
		return times
	}
	sum := func(times map[int]int, values ...int) (n int) {
		for _, v := range values {
			n += times[v]
		}
		return n
	}
	if times := count(); len(times) != 6 || sum(times, 1, 2, 3, 4, 10, 20) != 6 {
		t.Errorf("without weights: %v", times)
	}
	times := count(2.5, 0.5, 3)
	if sum(times, 1, 2, 3, 4) != 10 || sum(times, 10, 20) != 1 || min(times[1], times[2], times[3], times[4]) != 2 {
		t.Errorf("weights 2.5 and 0.5: %v", times)
	}
	if again := count(2.5, 0.5, 3); sum(again, 1, 2) != sum(times, 1, 2) {
		t.Errorf("%v, then %v", times, again)
	}
	if times := count(0, 1, 1); sum(times, 1, 2, 3, 4) != 0 || sum(times, 10, 20) != 2 {
		t.Errorf("weight 0: %v", times)
	}
}

// TestErrorsOfLossesNameTheirFlags: errors of losses and trackers named no flag, and that of --log-with came behind the
// tokenising.
func TestErrorsOfLossesNameTheirFlags(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--label-smoothing 0.1, want 0: the loss hinge": func(o *Options) { o.Method, o.LossType, o.LabelSmoothing = "dpo", "hinge", 0.1 },
		"--label-smoothing 0.5, want 0 or more":         func(o *Options) { o.Method, o.LabelSmoothing = "dpo", 0.5 },
		"--loss-type grpo, want sigmoid, hinge, ipo":    func(o *Options) { o.Method, o.LossType = "dpo", "grpo" },
		"--loss-type ipo, want dapo, grpo, bnpo or dr":  func(o *Options) { o.Method, o.LossType = "grpo", "ipo" },
		"--beta 0, want more than 0":                    func(o *Options) { o.Method, o.Beta = "kto", 0 },
		"--beta -0.5, want 0 or more":                   func(o *Options) { o.Method, o.Beta = "grpo", -0.5 },
		"--desirable-weight -1, want 0 or more":         func(o *Options) { o.Method, o.DesirableWeight = "kto", -1 },
		"--epsilon -1, want 0 or more":                  func(o *Options) { o.Method, o.Epsilon = "grpo", -1 },
		`--log-with "paper", want some of tensorboard`:  func(o *Options) { o.LogWith = []string{"csv", "paper"} },
		"--log-steps -2, want at least -1":              func(o *Options) { o.LogSteps = -2 },
	} {
		o := Defaults()
		o.Output, o.LogSteps, o.LogWith = "out", -1, []string{"all"}
		if err := o.Check([]string{"a.jsonl"}); err != nil {
			t.Fatal(err)
		}
		change(&o)
		err := o.Check([]string{"a.jsonl"})
		if _, wrong := err.(*UsageError); !wrong || !strings.HasPrefix(err.Error(), "got "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestUnknownNamesAreUsageErrors: names that flags reject are rejected in Options, too.
func TestUnknownNamesAreUsageErrors(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--optimizer \"adamx\"":        func(o *Options) { o.Optimizer = "adamx" },
		"--mixed-precision \"bf\"":     func(o *Options) { o.MixedPrecision = "bf" },
		"--method \"\", want one of s": func(o *Options) { o.Method = "" },
		"no folder for the result":     func(o *Options) { o.Output = "" },
		"got --batch 0":                func(o *Options) { o.Batch = 0 },
	} {
		o := Defaults()
		o.Output = "out"
		if err := o.Check([]string{"a.jsonl"}); err != nil {
			t.Fatal(err)
		}
		change(&o)
		_, err := Run(t.Context(), "model", []string{"a.jsonl"}, o)
		if _, wrong := err.(*UsageError); !wrong || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestMagnitudesTakeMemory: estimates of memory count what DoRA keeps, also where an adapter is gone on from.
func TestMagnitudesTakeMemory(t *testing.T) {
	dir := t.TempDir()
	j := &job{Options: &Options{LoRA: "from=" + dir}}
	for text, want := range map[string]bool{`{"use_dora": true}`: true, `{"use_dora": false}`: false, `{`: false} {
		if err := os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := j.magnitudes(); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
	if j.LoRA, j.DoRA = "r=2", true; !j.magnitudes() {
		t.Error("--dora has no magnitudes")
	}
}

// TestAPartOfTheDataIsHeldBack: --eval-split trains on the rest alone, the same for the same seed, of each file.
func TestAPartOfTheDataIsHeldBack(t *testing.T) {
	files := map[string]data.Slice[int]{"a": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, "b": {10, 11, 12}, "c": {13}}
	read := func(path string) (made[int], error) { return made[int]{Dataset: files[path], key: path}, nil }
	split := func(seed uint64) (kept, back []int, key string) {
		j := &job{Options: &Options{EvalSplit: 0.2, Seed: seed}, files: []string{"a", "b", "c"}}
		all, evals, err := sets(j, read, read, func(x int) int { return -x })
		if err != nil || len(evals) != 1 || evals[0].name != "" {
			t.Fatal(evals, err)
		}
		kept, err = data.All[int](all.Dataset)
		if err != nil {
			t.Fatal(err)
		}
		back, err = data.All(evals[0].of)
		if err != nil {
			t.Fatal(err)
		}
		return kept, back, all.key
	}
	kept, back, key := split(1)
	if len(kept) != 11 || len(back) != 3 || !slices.IsSorted(kept) || !slices.Contains(kept, 13) {
		t.Fatalf("got %v and %v", kept, back)
	}
	for _, x := range back {
		if slices.Contains(kept, -x) || x > 0 {
			t.Errorf("%d is in both, or was not cut", x)
		}
	}
	again, _, same := split(1)
	if !slices.Equal(again, kept) || same != key {
		t.Errorf("again: %v, key %q, want %v and %q", again, same, kept, key)
	}
	if other, _, changed := split(2); slices.Equal(other, kept) || changed == key {
		t.Errorf("another seed: %v, key %q", other, changed)
	}
	for _, o := range []Options{{EvalSplit: 1}, {EvalSplit: -0.1}, {EvalSplit: 0.1, EvalData: []string{"a"}}} {
		j := &job{Options: &o}
		if err := j.checkData(); err == nil {
			t.Errorf("%+v: want an error", o)
		}
	}
}

// TestFieldsOfOptionsHaveTheNamesOfFlags: --max-completion-length was MaxCompletion in Go, though docs/finetuning.md says
// that fields have the names of flags.
func TestFieldsOfOptionsHaveTheNamesOfFlags(t *testing.T) {
	others := map[string]string{"RewardRules": "--reward"} // Reward is a function
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
		if field.Tag.Get("kong") == "-" || field.Anonymous {
			continue
		}
		name := strings.ReplaceAll(strings.TrimPrefix(flag(field), "--"), "-", "")
		if !strings.EqualFold(name, field.Name) && others[field.Name] != flag(field) {
			t.Errorf("the field %s is the flag %s", field.Name, flag(field))
		}
	}
}
