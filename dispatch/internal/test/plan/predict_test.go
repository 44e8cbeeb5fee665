package plan_test

import (
	"context"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// mixture is a small Mixtral: 8 experts, of which a token reads 2.
func mixture(t *testing.T) *meta.Model {
	t.Helper()
	config, err := meta.ReadConfig([]byte(`{"model_type":"mixtral","hidden_size":64,"intermediate_size":96,"num_hidden_layers":3,
		"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":256,"num_local_experts":8,"num_experts_per_tok":2,"dtype":"bfloat16"}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func planFor(t *testing.T, m *meta.Model, text string) devicemap.Plan {
	t.Helper()
	policy, err := devicemap.ParsePolicy(text)
	if err != nil {
		t.Fatal(err)
	}
	limits := []devicemap.DeviceMemory{{Device: devicemap.GPU(0), Bytes: 1 << 30}, {Device: devicemap.CPU, Bytes: 1 << 30}}
	plan, _, err := dispatch.Plan(m, dispatch.Options{Context: 64, DeviceMap: policy, MaxMemory: limits})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func near(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil || !(math.Abs(*got-want) <= 1e-9*math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, value(got), want)
	}
}

func value(v *float64) any {
	if v == nil {
		return nil
	}
	return *v
}

// expected are the figures of mixture, worked out by hand.
const (
	perLayer   = 2 * (2*64*64 + 2*64*32 + 2*64 + 8*64)                      // attention, norms, router
	perExpert  = 2 * 3 * 64 * 96                                            // gate, up and down
	rotary     = 2 * 4 * 8                                                  // frequencies, in float32
	oneToken   = 3*(perLayer+2*perExpert) + 2*64 + 2*256*64 + 2*64 + rotary // norm, head, a row of the embedding
	dense      = oneToken - 3*2*perExpert                                   // what streams where the experts' cache holds all of them
	kvToken    = 3 * 2 * 32 * 2                                             // keys and values of a token, in bfloat16
	everything = 3*(perLayer+8*perExpert) + 2*64 + 2*2*256*64 + rotary
)

func TestPredict(t *testing.T) {
	m := mixture(t)
	step, err := dispatch.BytesPerToken(m, "")
	if err != nil || step != oneToken {
		t.Fatalf("%d bytes a token, error %v; want %d", step, err, oneToken)
	}
	speeds := dispatch.MachineSpeed{MemoryBytes: 1e6, DiskBytes: 1e5, Operations32: 1, Operations16: 1e12}
	// A prompt of 8 tokens uses 1 - (3/4)^8 of the experts.
	touched := oneToken + 3*8*perExpert*(1-math.Pow(0.75, 8)-0.25)

	cpu := dispatch.Predict(m, planFor(t, m, "cpu"), "", speeds)
	near(t, "cpu: load", cpu.LoadSeconds, everything/1e5)
	near(t, "cpu: first token", cpu.FirstTokenSeconds, touched/1e5+touched/1e6)
	const cache = 9 * kvToken / 0.55 // of a context of 8 tokens and the generated one
	near(t, "cpu: tokens a second", cpu.TokensPerSecond, 1e6/(oneToken+cache))
	near(t, "cpu: disk bytes", cpu.DiskBytesPerToken, 0)

	disk := dispatch.Predict(m, planFor(t, m, "disk"), "", speeds)
	near(t, "disk: load", disk.LoadSeconds, 0)
	near(t, "disk: tokens a second", disk.TokensPerSecond, 1e5/dense)
	near(t, "disk: disk bytes", disk.DiskBytesPerToken, dense)

	slow := speeds
	slow.Operations16 = 100
	near(t, "slow arithmetic", dispatch.Predict(m, planFor(t, m, "cpu"), "", slow).FirstTokenSeconds,
		touched/1e5+8*float64(oneToken)/100)

	half := dispatch.Predict(m, planFor(t, m, "cpu"), "int8", speeds)
	near(t, "int8: tokens a second", half.TokensPerSecond, 1e6/(float64((oneToken-rotary)/2+rotary/4)+cache))
}

// TestPromptsOfConvertedWeightsHaveTheirRate: prompts were predicted from products in float32 where weights are converted.
func TestPromptsOfConvertedWeightsHaveTheirRate(t *testing.T) {
	m := mixture(t)
	for _, c := range []struct {
		dtype string
		want  float64 // operations per second
	}{{"", 16}, {"q8_0", 8}, {"q4_0", 8}, {meta.QuantCoded.String(), 16}} {
		s := dispatch.MachineSpeed{MemoryBytes: 1e12, DiskBytes: 1e12, Operations32: 32, Operations16: 16, Operations8: 8}
		seconds := *dispatch.Predict(m, planFor(t, m, "cpu"), c.dtype, s).FirstTokenSeconds
		s.Operations32, s.Operations16, s.Operations8 = 1, 1, 1
		if got := *dispatch.Predict(m, planFor(t, m, "cpu"), c.dtype, s).FirstTokenSeconds / seconds; !(math.Abs(got-c.want) <= 0.01) {
			t.Errorf("weights in %q: got %.2f operations per second, want %v", c.dtype, got, c.want)
		}
	}
}

// TestExpertsWerePredictedAtTheRateOfWholePrompts: a prompt of a mixture was predicted at the rate of products of all its
// tokens, and a generated token without the time of operations: prompts up to four times too early.
func TestExpertsWerePredictedAtTheRateOfWholePrompts(t *testing.T) {
	m := mixture(t)
	const (
		maps    = 3 * (2*64*64 + 2*64*32 + 8*64) // of attention, and routers
		head    = 256 * 64
		experts = 3 * 8 * 3 * 64 * 96
		floats  = 3 * ((64 + 64) + 2*(64+32) + (64 + 64) + (64 + 8) + 2*(64+2*96) + 2*(96+64)) // of a token
	)
	s := dispatch.MachineSpeed{MemoryBytes: 1e9, DiskBytes: 1e9, Operations16: 512e6, Floats: 1e9, OperationSeconds: 1e-3,
		// 2, 8 and 32 ns per weight of 1, 16 and 64 tokens; 1,000 ns of 256 tokens of large matrices
		Products16: []dispatch.ProductSpeed{{Tokens: 1, Operations: 1e9}, {Tokens: 16, Operations: 4e9}, {Tokens: 64, Operations: 4e9}}}
	fixed := 3*(6+8)*1e-3 + 2e-3
	// All experts are chosen by 128 tokens, of which each multiplies 32.
	const n = 128
	chosen := 1 - math.Pow(0.75, n)
	rows := n * 0.25 / chosen
	want := 1e-9*(maps*(32+(1000-32)*64/192.)+head*2+experts*chosen*(8+24*(rows-16)/48)) + (n*floats*10+5*n*(n-1)/2*12+n*kvToken/0.55)/1e9 + fixed
	const cache = (n+1)*kvToken/0.55 + 5*n*12 // what attention reads behind the prompt
	run := dispatch.PredictRun(m, planFor(t, m, "cpu"), "", s, dispatch.Run{PromptTokens: n, BatchTokens: n, Sequences: 1})
	near(t, "prompt", run.FirstTokenSeconds, want)
	near(t, "tokens a second", run.TokensPerSecond, 1/(1e-9*2*(maps+head+experts/4)+(floats*10+cache)/1e9+fixed))

	// Two passes of half the tokens see as many positions.
	half := dispatch.PredictRun(m, planFor(t, m, "cpu"), "", s, dispatch.Run{PromptTokens: n, BatchTokens: n / 2, Sequences: 1})
	if *half.FirstTokenSeconds <= want {
		t.Errorf("in two passes: %v s, in one: %v s", *half.FirstTokenSeconds, want)
	}
	// Weights of half the size take half the time to read from memory.
	s.Products8, s.Operations8 = s.Products16, s.Operations16
	eight := dispatch.PredictRun(m, planFor(t, m, "cpu"), "q4_0", s, dispatch.Run{PromptTokens: n, BatchTokens: n, Sequences: 1})
	near(t, "tokens a second in 4.5 bits of 8.5", eight.TokensPerSecond, 1/((2e-9-4./8*1e-9)*(maps+head+experts/4)+(floats*10+cache)/1e9+fixed))
}

// TestWeightsOfFewBitsTookNoTime: the time of 4-bit weights is that of 8-bit ones less the time to
// read the difference. If a probe found memory slower than the products that read it, nothing was
// left, and a token was predicted to take almost no time.
func TestWeightsOfFewBitsTookNoTime(t *testing.T) {
	m := mixture(t)
	s := dispatch.MachineSpeed{MemoryBytes: 1e9, DiskBytes: 1e9, Operations8: 4e9, Floats: 1e12,
		Products8: []dispatch.ProductSpeed{{Tokens: 1, Operations: 8e9}, {Tokens: 16, Operations: 8e9}}}
	got := dispatch.PredictRun(m, planFor(t, m, "cpu"), "q4_0", s, dispatch.Run{Sequences: 1}).TokensPerSecond
	const weights = oneToken / 2
	if most := 1e9 / (0.5 * weights); got == nil || *got > most {
		t.Errorf("%v tokens/s, want at most %.0f, at which memory provides the weights", value(got), most)
	}
}

// TestGeneratedTokensWerePredictedWithoutTheKVCache: tokens behind a long prompt were predicted to
// be as fast as the first ones.
func TestGeneratedTokensWerePredictedWithoutTheKVCache(t *testing.T) {
	m := mixture(t)
	s := dispatch.MachineSpeed{MemoryBytes: 1e9, DiskBytes: 1e9, Operations16: 512e6, Floats: 1e9,
		Products16: []dispatch.ProductSpeed{{Tokens: 1, Operations: 1e9}, {Tokens: 16, Operations: 4e9}}}
	seconds := func(s dispatch.MachineSpeed, r dispatch.Run) float64 {
		r.BatchTokens, r.Sequences = 4096, max(r.Sequences, 1)
		return float64(r.Sequences) / *dispatch.PredictRun(m, planFor(t, m, "cpu"), "", s, r).TokensPerSecond
	}
	const (
		heads = 3 * 4
		reads = kvToken / 0.55 // of a cached token, in bytes
	)
	short := seconds(s, dispatch.Run{PromptTokens: 100})
	for _, c := range []struct {
		what string
		run  dispatch.Run
		want float64
	}{
		{"2,000 tokens", dispatch.Run{PromptTokens: 2000}, 1900 * (reads + 5*heads)},
		{"the middle of the answer", dispatch.Run{PromptTokens: 1000, DecodeTokens: 2000}, 1900 * (reads + 5*heads)},
		{"a float32 cache", dispatch.Run{PromptTokens: 2000, KVDType: meta.Float32}, 1900*(2*reads+5*heads) + 101*reads},
	} {
		if got, want := seconds(s, c.run)-short, c.want/1e9; !(math.Abs(got-want) <= 1e-6*want) {
			t.Errorf("behind %s a token takes %v s more, want %v", c.what, got, want)
		}
	}
	one := seconds(s, dispatch.Run{PromptTokens: 2000, Sequences: 8}) - seconds(s, dispatch.Run{PromptTokens: 100, Sequences: 8})
	if want := 8 * 1900 * (reads + 5*heads) / 1e9; !(math.Abs(one-want) <= 1e-6*want) {
		t.Errorf("8 sequences take %v s more, want %v", one, want)
	}
	s.Floats, s.Products16 = 0, nil
	if got, want := seconds(s, dispatch.Run{PromptTokens: 2000})-seconds(s, dispatch.Run{PromptTokens: 100}), 1900*reads/1e9; !(math.Abs(got-want) <= 1e-6*want) {
		t.Errorf("without rates by tokens: %v s more, want %v", got, want)
	}
}

func TestPredictSaysWhatIsNotKnown(t *testing.T) {
	m := mixture(t)
	memory := dispatch.MachineSpeed{MemoryBytes: 1e6, Operations16: 1e12}
	bare := dispatch.Predict(m, planFor(t, m, "cpu"), "", memory)
	if bare.LoadSeconds != nil || bare.FirstTokenSeconds != nil || bare.TokensPerSecond == nil || *bare.DiskBytesPerToken != 0 {
		t.Errorf("cpu without a disk's rate: %v", marshal(t, bare))
	}
	streamed := dispatch.Predict(m, planFor(t, m, "disk"), "", memory)
	if streamed.TokensPerSecond != nil || *streamed.DiskBytesPerToken != dense {
		t.Errorf("disk without a disk's rate: %v", marshal(t, streamed))
	}
	full := dispatch.MachineSpeed{MemoryBytes: 1e6, DiskBytes: 1e5, Operations16: 1e12}
	gpu := dispatch.Predict(m, planFor(t, m, "0"), "", full)
	if gpu.LoadSeconds != nil || gpu.FirstTokenSeconds != nil || gpu.TokensPerSecond != nil {
		t.Errorf("on a GPU of unknown speed: %v", marshal(t, gpu))
	}
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestProbe(t *testing.T) {
	checkpoint, err := loader.Open(dispatchtest.DemoFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	s, err := dispatch.Probe(context.Background(), dispatch.Options{Threads: 1, Ledger: new(dispatch.Ledger)}, checkpoint, 32<<20)
	if err != nil || s.MemoryBytes <= 0 || s.DiskBytes <= 0 || min(s.Operations32, s.Operations16, s.Operations8, s.Floats) <= 0 || len(s.Products16) == 0 {
		t.Errorf("%+v, error %v", s, err)
	}
	if s, err = dispatch.Probe(context.Background(), dispatch.Options{}, nil, -5); err != nil || s.MemoryBytes != 0 || s.DiskBytes != 0 {
		t.Errorf("without memory and files: %+v, error %v", s, err)
	}
}

// TestReportShowsPredictedAndMeasured runs a model and looks at the JSON of GET /plan.
func TestReportShowsPredictedAndMeasured(t *testing.T) {
	m, err := dispatch.Open(dispatchtest.DemoFolder(t), dispatch.Options{DeviceMap: devicemap.Policy{
		Kind: devicemap.Manual, Pins: devicemap.NewMap(devicemap.Entry{Path: "", Device: devicemap.CPU},
			devicemap.Entry{Path: "model.layers.1", Device: devicemap.Disk})}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := m.Measured(); got != (dispatch.ModelSpeed{}) {
		t.Errorf("before the first pass: %s", marshal(t, got))
	}
	m.Warm(t.Context())
	for deadline := time.Now().Add(time.Minute); !m.Status().Loading.Done && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	dispatchtest.Generate(t, m, []int32{1, 2, 3}, dispatch.GenerateOptions{MaxTokens: 40})
	plan := planFor(t, m.Skeleton(), "model.layers.1=disk")
	report := dispatch.NewReport(plan)
	report.Predicted = dispatch.Predict(m.Skeleton(), plan, "", dispatch.MachineSpeed{MemoryBytes: 1e9, DiskBytes: 1e9, Operations16: 1e9, Operations32: 1e9})
	var got struct {
		DeviceMap           [][2]any         `json:"device_map"`
		Devices             []map[string]any `json:"devices"`
		Predicted, Measured map[string]*float64
	}
	if err := json.Unmarshal([]byte(marshal(t, report.With(m.Measured()))), &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"load_seconds", "first_token_seconds", "tokens_per_second", "disk_bytes_per_token"} {
		if got.Measured[name] == nil || *got.Measured[name] < 0 {
			t.Errorf("measured %s: %v", name, value(got.Measured[name]))
		}
		if _, there := got.Predicted[name]; !there {
			t.Errorf("predicted %s is missing", name)
		}
	}
	if len(got.DeviceMap) == 0 || len(got.Devices) == 0 {
		t.Error("the plan is missing")
	}
	if report.Measured != (dispatch.ModelSpeed{}) {
		t.Error("With changed the report")
	}
}

func TestEstimateMemory(t *testing.T) {
	m := mixture(t)
	n, err := dispatch.EstimateMemory(m, dispatch.Options{Context: 64, MaxBatchTokens: 8}, "")
	if err != nil {
		t.Fatal(err)
	}
	const perToken = 3 * 2 * 32 * 2 // layers, keys and values, their width in bfloat16
	if n.KVPerToken != perToken || n.KVTokens != 64 {
		t.Errorf("keys and values: %d bytes a token, %d tokens; want %d, 64", n.KVPerToken, n.KVTokens, perToken)
	}
	if want := int64(everything) + 64*perToken + n.Activations + n.Runtime; n.All != want {
		t.Errorf("all in memory: %d, want %d", n.All, want)
	}
	if n.Activations <= 0 || n.Least >= n.All || n.Least <= n.Activations+64*perToken {
		t.Errorf("least: %+v", n)
	}
	if n.Runtime <= dispatch.RuntimeBytes || n.Runtime > dispatch.RuntimeBytes+1<<20 {
		t.Errorf("the runtime takes %d bytes beside a small vocabulary, want hardly more than %d", n.Runtime, dispatch.RuntimeBytes)
	}
	blocks, err := dispatch.EstimateMemory(m, dispatch.Options{Context: 64, MaxBatchTokens: 8, KVDType: meta.Int8}, "")
	full, err2 := dispatch.EstimateMemory(m, dispatch.Options{Context: 64, MaxBatchTokens: 8, KVDType: meta.Float32}, "")
	if heads := full.KVPerToken; err != nil || err2 != nil || blocks.KVPerToken >= heads || blocks.KVPerToken%34 != 0 || full.All-blocks.All < 64*(heads-blocks.KVPerToken) {
		t.Errorf("keys and values in q8_0 take %d bytes a token of %d, in all %d of %d (%v, %v)", blocks.KVPerToken, heads, blocks.All, full.All, err, err2)
	}
	small, err := dispatch.EstimateMemory(m, dispatch.Options{Context: 64, MaxBatchTokens: 8}, "int4")
	if err != nil || small.All >= n.All || small.Least >= n.Least {
		t.Errorf("int4: %+v, error %v; bfloat16: %+v", small, err, n)
	}
	if free, err := dispatch.EstimateMemory(m, dispatch.Options{}, ""); err != nil || free.KVTokens != 4096 {
		t.Errorf("without a context: %+v, error %v", free, err)
	}
}
