package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/text"
)

// planned plans a model of which only the config is there.
func planned() error {
	config, err := meta.ReadConfig([]byte(`{"model_type": "llama", "dtype": "bfloat16", "hidden_size": 4096, "intermediate_size": 14336,
		"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
		"rms_norm_eps": 1e-5, "tie_word_embeddings": false}`))
	if err != nil {
		return err
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		return err
	}
	limits, err := devicemap.ParseMaxMemory("cpu=6GiB")
	if err != nil {
		return err
	}
	plan, _, err := dispatch.Plan(skeleton, dispatch.Options{MaxMemory: limits})
	if err != nil {
		return err
	}
	fmt.Printf("planned: %v of weights on the disk\n", plan.Device(devicemap.Disk).WeightsBytes > 8<<30)
	return nil
}

// tight opens the model in less memory than it needs: the plan warns.
func tight(folder string) error {
	model, err := dispatch.Open(folder, dispatch.Options{Context: 64, MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: 1e6}}})
	if err != nil {
		return err
	}
	defer model.Close()
	if len(model.Plan().Warnings) == 0 {
		return errors.New("a limit of 1 MB runs from the disk without a warning")
	}
	stopped := errors.New("stopped")
	hook, err := model.AddHook(dispatch.Hook{Pre: func(*dispatch.ModuleCall) error { return stopped }})
	if err != nil {
		return err
	}
	for _, err := range model.Generate(context.Background(), []int32{1}, dispatch.GenerateOptions{MaxTokens: 1}) {
		if !errors.Is(err, stopped) {
			return fmt.Errorf("the hook's error is %w", err)
		}
	}
	hook.Remove()
	for _, err := range model.Generate(context.Background(), []int32{1}, dispatch.GenerateOptions{MaxTokens: 1}) {
		if err != nil {
			return err
		}
	}
	fmt.Println("tight: warned, and ran")
	return nil
}

// chats renders a conversation with a tool and reads a call.
func chats(folder string) error {
	tokenizer, chat, err := text.Open(folder)
	if err != nil {
		return err
	}
	if chat, err = chat.WithParsers("hermes", ""); err != nil {
		return err
	}
	conversation := text.Conversation{Messages: []text.Message{text.User("Weather in Oslo?")}, AddGenerationPrompt: true,
		Tools: []text.Tool{{Name: "weather", Parameters: json.RawMessage(`{"type": "object", "properties": {"city": {"type": "string"}}}`)}}}
	prompt, err := chat.Render(conversation)
	if err != nil {
		return err
	}
	ids, err := tokenizer.Encode(prompt, text.EncodeOptions{})
	if err != nil || tokenizer.Decode(ids, false) != prompt {
		return fmt.Errorf("the prompt does not come back: %w", err)
	}
	answer := chat.Parse(`<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>`, text.ParseOptions{Prompt: prompt, Tools: conversation.Tools})
	if len(answer.ToolCalls) != 1 {
		return fmt.Errorf("no call in %+v", answer)
	}
	call := answer.ToolCalls[0]
	conversation.Messages = append(conversation.Messages, answer, text.ToolResult(call, "rain"))
	fmt.Println("call:", call.Name, call.Arguments)
	return nil
}

// served serves the model in folder and its adapter, and asks both over HTTP.
func served(ctx context.Context, folder, adapter string) error {
	model, err := dispatch.Open(folder, dispatch.Options{KVTokens: 1024, Adapters: []dispatch.Adapter{{Name: "parrot", Dir: adapter}}})
	if err != nil {
		return err
	}
	defer model.Close()
	generator, err := generate.New(model, generate.Options{Name: demo.Name})
	if err != nil {
		return err
	}
	defer generator.Close()
	greedy := generate.TextOptions{Params: &generate.Params{}, MaxTokens: 24, Stop: []string{"!"}}
	hello, err := generator.Complete(ctx, "<|user|>Hello!<|end|><|assistant|>", greedy)
	if err != nil {
		return err
	}
	fmt.Println("generated:", hello)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- api.Serve(ctx, listener, generator, api.Options{}) }()
	for _, name := range []string{demo.Name, "parrot"} {
		body := fmt.Sprintf(`{"model": %q, "temperature": 0, "max_tokens": 24, "messages": [{"role": "user", "content": "Who are you?"}]}`, name)
		r, err := http.Post("http://"+listener.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		b, err := io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return err
		}
		var out struct {
			Choices []struct{ Message text.Message }
		}
		if err := json.Unmarshal(b, &out); err != nil || len(out.Choices) != 1 {
			return fmt.Errorf("%s: %w", b, err)
		}
		fmt.Printf("%s: %s\n", name, out.Choices[0].Message.Content)
	}
	stop()
	return <-done
}

// serving does all that with the demo model in a folder.
func serving(ctx context.Context, dir string) error {
	folder := filepath.Join(dir, "model")
	if err := os.CopyFS(folder, demo.Files()); err != nil {
		return err
	}
	adapter := filepath.Join(dir, "adapter")
	for _, step := range []func() error{planned, func() error { return tight(folder) }, func() error { return chats(folder) },
		func() error { return tune(ctx, folder, dir, adapter) }, func() error { return served(ctx, folder, adapter) }} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
