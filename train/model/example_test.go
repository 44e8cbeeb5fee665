package model_test

import (
	"fmt"
	"log"
	"slices"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/text"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// A model is a config and parameters. New starts with zeros.
func ExampleNew() {
	config, err := meta.ReadConfig([]byte(`{"model_type": "llama", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24,
		"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16}`))
	if err != nil {
		log.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		log.Fatal(err)
	}
	m, err := model.New(skeleton)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	n := 0
	for name, p := range m.Parameters() {
		if n++; n <= 2 {
			fmt.Println(name, p.Shape())
		}
	}
	fmt.Println(n, "parameters")
	// Output:
	// model.embed_tokens.weight [64 16]
	// model.layers.0.self_attn.q_proj.weight [16 16]
	// 21 parameters
}

// An adapter teaches the demo model an answer. Its base stays in the checkpoint.
func ExampleModel_AddLoRA() {
	m, words, err := open()
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.AddLoRA(model.LoRAConfig{R: 8, Alpha: 16}, rng.New(42)); err != nil {
		log.Fatal(err)
	}
	const question = "What do you eat?"
	before, err := answer(m, words, question)
	if err != nil {
		log.Fatal(err)
	}
	if err := teach(m, words, question, "Weights, one layer at a time."); err != nil {
		log.Fatal(err)
	}
	after, err := answer(m, words, question)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(before != after)
	fmt.Println(after)
	// Output:
	// true
	// Weights, one layer at a time.
}

// A value head of one's own: a linear map of the states, whose gradients reach the model, too. Texts of
// several lengths are padded, and padding has the value of zeros.
func ExampleModel_HiddenStates() {
	m, _, err := open()
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.AddLoRA(model.LoRAConfig{R: 4, Alpha: 8}, rng.New(1)); err != nil {
		log.Fatal(err)
	}
	batch := model.Batch{
		IDs:    []int{5, 6, 7, 8, 9, 0},
		Mask:   []bool{true, true, true, true, true, false},
		Length: 3,
	}
	tape := tensor.NewTape(tensor.Options{})
	states, err := m.HiddenStates(tape, batch, model.Options{})
	if err != nil {
		log.Fatal(err)
	}
	width := states.Shape()[2]
	head := tensor.NewParameter(slices.Repeat([]float32{0.01}, width), 1, width)
	values := tape.Linear(states, tape.Use(head), nil)
	if err := tape.Backward(tape.Sum(tape.Mul(values, values)), 1); err != nil {
		log.Fatal(err)
	}
	learning := 0
	for _, p := range m.Parameters() {
		if p.Grad() != nil {
			learning++
		}
	}
	fmt.Println(values.Shape(), values.Data()[5], head.Grad() != nil, learning > 0)
	// Output: [2 3 1] 0 true true
}

// open reads the demo model, whose weights stay in its checkpoint, and its tokenizer.
func open() (*model.Model, *data.Tokenizer, error) {
	skeleton, checkpoint, err := loader.OpenModelFS(demo.Name, demo.Files())
	if err != nil {
		return nil, nil, err
	}
	binding, err := loader.Bind(checkpoint, skeleton)
	if err != nil {
		return nil, nil, err
	}
	m, err := model.Load(skeleton, binding, model.Freeze(func(string) bool { return true }))
	if err != nil {
		return nil, nil, err
	}
	words, err := data.OpenTokenizerFS(demo.Name, demo.Files())
	return m, words, err
}

// teach trains the trainable parameters of m on one question and its answer.
func teach(m *model.Model, words *data.Tokenizer, question, answer string) error {
	chat := text.Conversation{Messages: []text.Message{text.User(question), text.Assistant(answer)}}
	s, err := words.TokenizeConversation(chat, data.TextOptions{})
	if err != nil {
		return err
	}
	batch, err := data.PadTokens(data.Padding{})([]data.Sequence{s})
	if err != nil {
		return err
	}
	b := model.Batch{Length: batch.Columns}
	b.IDs, b.Labels = batch.Ints()
	opt, err := optim.NewAdamW(train.Params(m), optim.AdamOptions{LR: 0.01})
	if err != nil {
		return err
	}
	tape := tensor.NewTape(tensor.Options{})
	for range 20 {
		loss, err := m.Loss(tape, b, model.Options{})
		if err != nil {
			return err
		}
		if err := tape.Backward(loss, 1); err != nil {
			return err
		}
		if err := opt.Step(); err != nil {
			return err
		}
		opt.ZeroGrad()
	}
	return nil
}

// answer generates the likeliest tokens. Package dispatch generates much faster.
func answer(m *model.Model, words *data.Tokenizer, question string) (string, error) {
	tokenizer, chat, err := text.OpenFS(demo.Name, demo.Files())
	if err != nil {
		return "", err
	}
	prompt, err := chat.Render(text.Conversation{Messages: []text.Message{text.User(question)}, AddGenerationPrompt: true})
	if err != nil {
		return "", err
	}
	encoded, err := tokenizer.Encode(prompt, text.EncodeOptions{})
	if err != nil {
		return "", err
	}
	var ids []int
	for _, id := range encoded {
		ids = append(ids, int(id))
	}
	end, _ := words.Special("eos_token")
	tape := tensor.NewTape(tensor.Options{})
	var said []int32
	for range 20 {
		var next int32
		tape.NoGrad(func() {
			var logits *tensor.Tensor
			if logits, err = m.Logits(tape, model.Batch{IDs: ids, Length: len(ids)}); err == nil {
				next = best(logits.Data()[logits.Len()-logits.Len()/len(ids):])
			}
		})
		if err != nil || next == end {
			break
		}
		said, ids = append(said, next), append(ids, int(next))
	}
	return words.Decode(said), err
}

// best is the index of the largest number.
func best(x []float32) int32 {
	at := 0
	for i, v := range x {
		if v > x[at] {
			at = i
		}
	}
	return int32(at)
}
