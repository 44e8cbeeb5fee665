// Constrainbench measures what constraints cost streams that run at once, and what they save: CPU time and
// tokens per second of a made model of 0.22B parameters with the vocabulary of a real tokenizer.
//
//	go run ./scripts/constrainbench [-streams 8] [-tokens 256] [-rounds 3] TOKENIZER_FOLDER
//
// Streams run free, with a constraint whose certain tokens pass one by one, and with one whose certain
// tokens pass together. All answers have the same number of tokens.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/holder"
)

// documents are the documents that each stream writes: records with long keys, without end.
const documents = `{"type":"array","minItems":1000,"items":{"type":"object","properties":{
	"identifier_of_the_record":{"type":"integer","minimum":%d,"maximum":99999},"status_of_the_record":{"enum":["waiting for approval","delivered to the customer"]},
	"name_of_the_customer":{"type":"string","maxLength":24},"comment_of_the_customer":{"type":"string","maxLength":%d}},
	"required":["identifier_of_the_record","status_of_the_record","name_of_the_customer","comment_of_the_customer"],"additionalProperties":false}}`

func main() {
	log.SetFlags(0)
	streams := flag.Int("streams", 8, "requests at once")
	tokens := flag.Int("tokens", 256, "tokens of each answer")
	rounds := flag.Int("rounds", 3, "rounds of all modes in turn")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: constrainbench TOKENIZER_FOLDER")
	}
	dir, err := os.MkdirTemp("", "heft-constrainbench-")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	check(writeModel(dir, flag.Arg(0)))
	model, err := dispatch.Open(dir, dispatch.Options{})
	check(err)
	defer model.Close()
	m, err := generate.New(model, generate.Options{})
	check(err)
	defer m.Close()
	b := &bench{m: m, model: model, streams: *streams, tokens: *tokens}
	cpu, speed := map[string][]float64{}, map[string][]float64{}
	b.run("together", 32) // compiles, and brings the weights to memory
	for range *rounds {
		for _, mode := range modes {
			c, s := b.run(mode, *tokens)
			cpu[mode], speed[mode] = append(cpu[mode], c), append(speed[mode], s)
		}
	}
	for _, mode := range modes {
		fmt.Printf("%-10s %7.3f ms of CPU time per token (%+.1f %%), %6.1f tokens/s (%.2fx)\n", mode, median(cpu[mode]),
			100*(median(cpu[mode])/median(cpu["free"])-1), median(speed[mode]), median(speed[mode])/median(speed["free"]))
	}
}

var modes = []string{"free", "one by one", "together"}

type bench struct {
	m               *generate.Model
	model           *dispatch.Model
	streams, tokens int
}

// run returns the CPU time of a token in milliseconds and the tokens per second.
func (b *bench) run(mode string, tokens int) (cpu, speed float64) {
	before := holder.Engine(b.m)
	e := engine.New(engine.ForDispatch(b.model), engine.Options{OneByOne: mode == "one by one"})
	holder.SetEngine(b.m, e)
	if before != nil {
		before.Close()
	}
	begin, used := time.Now(), cpuTime()
	var wait sync.WaitGroup
	for i := range b.streams {
		r := generate.Request{Prompt: []int32{1, 2, 3, 4}, MaxTokens: tokens, Seed: uint64(i), IgnoreEOS: true, Params: generate.Params{Temperature: 1, Stop: []int32{0}}}
		if mode != "free" {
			r.Constraint = &generate.Constraint{Schema: json.RawMessage(fmt.Sprintf(documents, i, 20+i))}
		} else {
			r.Params.Stop = nil
		}
		wait.Go(func() { b.read(r, tokens) })
	}
	wait.Wait()
	total := float64(b.streams * tokens)
	return float64((cpuTime() - used).Microseconds()) / 1000 / total, total / time.Since(begin).Seconds()
}

// read reads an answer to its end.
func (b *bench) read(r generate.Request, tokens int) {
	ctx := context.Background()
	run, err := b.m.Start(ctx, r)
	check(err)
	defer run.Close()
	for {
		_, err := run.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		check(err)
	}
	if n := run.Usage().Completion; n != tokens {
		log.Fatalf("an answer of %d tokens, want %d", n, tokens)
	}
}

func median(list []float64) float64 {
	list = slices.Clone(list)
	slices.Sort(list)
	return list[len(list)/2]
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// writeModel writes a Llama of 8 layers with made weights beside the tokenizer's files.
func writeModel(dir, tokenizer string) error {
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join(tokenizer, name))
		if err != nil {
			return err
		}
		if err := atomicfile.WriteFile(filepath.Join(dir, name), data); err != nil {
			return err
		}
	}
	const vocab, hidden, inner, keys, layers = 128256, 1024, 2816, 256, 8
	config := fmt.Sprintf(`{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":%d,"intermediate_size":%d,"num_hidden_layers":%d,
		"num_attention_heads":16,"num_key_value_heads":4,"vocab_size":%d,"rms_norm_eps":1e-5,"max_position_embeddings":4096,"tie_word_embeddings":true,
		"torch_dtype":"bfloat16","hidden_act":"silu","rope_theta":500000.0,"bos_token_id":1,"eos_token_id":0}`, hidden, inner, layers, vocab)
	if err := atomicfile.WriteFile(filepath.Join(dir, "config.json"), []byte(config)); err != nil {
		return err
	}
	shapes := [][3]any{{"model.embed_tokens.weight", vocab, hidden}, {"model.norm.weight", hidden, 0}}
	for i := range layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		shapes = append(shapes, [3]any{p + "input_layernorm.weight", hidden, 0}, [3]any{p + "post_attention_layernorm.weight", hidden, 0},
			[3]any{p + "self_attn.q_proj.weight", hidden, hidden}, [3]any{p + "self_attn.k_proj.weight", keys, hidden},
			[3]any{p + "self_attn.v_proj.weight", keys, hidden}, [3]any{p + "self_attn.o_proj.weight", hidden, hidden},
			[3]any{p + "mlp.gate_proj.weight", inner, hidden}, [3]any{p + "mlp.up_proj.weight", inner, hidden}, [3]any{p + "mlp.down_proj.weight", hidden, inner})
	}
	return writeWeights(filepath.Join(dir, "model.safetensors"), shapes)
}

// writeWeights writes tensors of small random numbers in bfloat16.
func writeWeights(path string, shapes [][3]any) error {
	header, at := map[string]any{}, 0
	for _, s := range shapes {
		rows, columns := s[1].(int), s[2].(int)
		shape := []int{rows}
		if columns > 0 {
			shape = append(shape, columns)
		}
		n := 2 * rows * max(columns, 1)
		header[s[0].(string)] = map[string]any{"dtype": "BF16", "shape": shape, "data_offsets": []int{at, at + n}}
		at += n
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	size := make([]byte, 8)
	for i := range size {
		size[i] = byte(len(text) >> (8 * i))
	}
	values, x := make([]byte, 1<<20+2), uint32(1)
	for i := 0; i < len(values); i += 2 {
		x = x*1664525 + 1013904223
		values[i], values[i+1] = byte(x>>16), 0x3C|byte(x>>24)&0x80 // 0.008 to 0.03, either sign
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		if _, err := w.Write(append(size, text...)); err != nil {
			return err
		}
		for at > 0 {
			n := min(at, len(values))
			if _, err := w.Write(values[:n]); err != nil {
				return err
			}
			at -= n
		}
		return nil
	})
}
