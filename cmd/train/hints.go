package main

// hints maps names of options of TRL, transformers, PEFT, axolotl, unsloth and LLaMA-Factory to those of train run.
var hints = hintsOf(foreign)

const (
	adapterHint   = "use --lora r=16,alpha=32,dropout=0.05,targets=q_proj+v_proj; without targets, all linear maps but the head"
	fourBitsHint  = "use --quantize nf4 with --lora"
	intervalHint  = " N for every N steps, 0 for each epoch, -1 for never"
	noEffectHint  = "omit it: it has no effect on what is learned here"
	evalDataHint  = "use --eval-split 0.1, or --eval-data FILE"
	deepspeedHint = "use --plugin zero1, zero2 or gemini"
	lackHint      = "omit it: train run does not support it"
	formHint      = "omit it: the keys of a record determine its form; see docs/finetuning.md"
)

// foreign maps option names, without their leading dashes, to what to use instead.
var foreign = map[string][]string{
	"use --model DIR":                               {"model-name-or-path", "base-model", "model-name", "model-id"},
	"use --data FILE":                               {"dataset", "datasets", "dataset-name", "dataset-path", "dataset-dir", "train-file", "training-data", "data-path"},
	"use --output DIR":                              {"output-dir", "output-path", "save-path"},
	"use --epochs N":                                {"num-train-epochs", "num-epochs", "n-epochs"},
	"use --batch N":                                 {"per-device-train-batch-size", "micro-batch-size", "train-batch-size", "per-device-eval-batch-size", "eval-batch-size"},
	"use --sequence N":                              {"max-length", "max-seq-length", "max-seq-len", "sequence-len", "cutoff-len", "model-max-length", "block-size", "max-prompt-length", "max-target-length"},
	"use --pack":                                    {"packing", "sample-packing", "neat-packing", "padding-free", "group-by-length", "packing-strategy"},
	"use --eval-data FILE":                          {"test-file", "validation-file", "eval-file", "eval-dataset", "test-datasets"},
	evalDataHint:                                    {"val-set-size", "val-size", "test-size", "validation-split-percentage", "do-eval"},
	"use --lr-scheduler NAME":                       {"lr-scheduler-type"},
	"use --lr-scheduler-kwargs JSON":                {"lr-scheduler-args", "cosine-min-lr-ratio"},
	"use --max-grad-norm N":                         {"gradient-clipping", "grad-clip", "gradient-clip-val"},
	"use --gradient-accumulation-steps N":           {"grad-accumulation-steps", "accumulate-grad-batches", "accumulation-steps"},
	"use --mixed-precision bf16":                    {"bf16", "bfloat16", "bf16-full-eval"},
	"use --mixed-precision fp16":                    {"fp16", "float16", "fp16-full-eval"},
	"use --mixed-precision bf16, or no for float32": {"tf32", "fp32", "load-in-16bit"},
	"use --recompute on":                            {"gradient-checkpointing", "use-gradient-checkpointing", "activation-checkpointing", "gradient-checkpointing-kwargs", "activation-checkpointing-kwargs", "activation-offloading"},
	adapterHint:                                     {"lora-r", "lora-rank", "lora-alpha", "lora-dropout", "lora-target-modules", "lora-target-linear", "lora-target", "target-modules", "use-peft", "use-lora", "peft-type", "adapter", "finetuning-type", "use-rslora", "peft-use-rslora", "lora-fan-in-fan-out", "lora-layers-to-transform", "r", "lora-task-type"},
	"use --dora with --lora":                        {"use-dora", "peft-use-dora"},
	"use --modules-to-save NAME,… with --lora":      {"lora-modules-to-save", "lora-target-parameters", "additional-target"},
	"use --lora from=DIR":                           {"lora-model-dir", "adapter-name-or-path", "adapter-path"},
	"use --merge with --lora":                       {"merge-lora", "merge-adapter", "merge-and-unload"},
	fourBitsHint:                                    {"load-in-4bit", "use-4bit", "quantization-bit", "bnb-4bit-quant-type", "use-bnb-nested-quant", "bnb-4bit-use-double-quant", "bnb-4bit-compute-dtype", "qlora"},
	"use --quantize q8_0 with --lora":               {"load-in-8bit", "use-8bit"},
	"use --freeze PATTERN":                          {"unfrozen-parameters", "freeze-layers", "freeze-trainable-layers"},
	"use --log-steps" + intervalHint:                {"logging-steps", "logging-strategy", "logging-first-step"},
	"use --eval-steps" + intervalHint:               {"eval-strategy", "evaluation-strategy", "evals-per-epoch"},
	"use --save-steps" + intervalHint:               {"save-strategy", "saves-per-epoch"},
	"use --log-with tensorboard,jsonl,csv,curve":    {"report-to", "use-tensorboard", "wandb-project", "use-wandb", "use-mlflow", "wandb-name", "wandb-entity", "wandb-run-id", "wandb-watch", "wandb-log-model"},
	"use --resume DIR, or auto":                     {"resume-from-checkpoint", "auto-resume-from-checkpoints"},
	"use --resume never":                            {"overwrite-output-dir", "ignore-data-skip"},
	"use --optimizer NAME":                          {"optimiser", "optim-type"},
	"use --adam-beta1, --adam-beta2, --adam-epsilon or --momentum": {"optim-args", "betas"},
	"use --learn-prompt": {"train-on-inputs", "train-on-prompt"},
	"omit it: only the answers are learned unless --learn-prompt or --last-answer is set": {"assistant-only-loss", "completion-only-loss", "train-on-responses-only", "train-on-eos", "roles-to-train", "mask-history"},
	"use --method dpo, orpo, kto, grpo or reward":                                         {"rl", "trainer", "stage", "reward-model", "trainer-type"},
	"use --beta N":         {"dpo-beta", "rl-beta", "pref-beta", "kto-beta", "orpo-alpha"},
	"use --loss-type NAME": {"pref-loss", "dpo-loss-type"},
	"use --desirable-weight and --undesirable-weight":             {"kto-desirable-weight", "kto-undesirable-weight"},
	"omit it: the reference is the model as the run began":        {"ref-model", "model-ref", "ref-model-name-or-path", "sync-ref-model", "precompute-ref-log-probs", "force-use-ref-model", "precompute-ref-batch-size"},
	"use --reward RULE or --reward-command PROGRAM":               {"reward-funcs", "reward-model-name-or-path", "reward-model-path"},
	"omit it: completions are generated in the same process":      {"use-vllm", "vllm-mode", "vllm-gpu-memory-utilization", "fast-inference", "gpu-memory-utilization"},
	"use --max-completion-length N":                               {"max-new-tokens", "response-length"},
	deepspeedHint:                                                 {"deepspeed", "fsdp", "fsdp-config", "ddp-backend", "ddp", "zero-stage"},
	"use --seed N":                                                {"random-state", "data-seed"},
	"use --shuffle or --no-shuffle":                               {"disable-shuffling", "shuffle-dataset"},
	"use --dtype DTYPE":                                           {"torch-dtype", "model-dtype", "precision"},
	"use --max-memory cpu=SIZE":                                   {"device-map", "cpu-offload", "max-memory-per-gpu"},
	"use --neftune-noise-alpha N":                                 {"noisy-embedding-alpha", "neftune"},
	"put it into tokenizer_config.json of the model's folder":     {"chat-template", "chat-template-path", "template", "special-tokens", "eos-token", "pad-token", "tokenizer-type", "add-tokens", "tokenizer-name-or-path"},
	"omit it: upload the folder of --output with another program": {"push-to-hub", "hub-model-id", "hub-strategy", "hub-token", "hub-private-repo", "hub-always-push", "hub-revision"},
	"rename the key to text in the data":                          {"dataset-text-field", "text-column", "text-field"},
	formHint:                                                      {"dataset-format", "chat-template-strategy", "formatting-func", "field-messages", "dataset-config", "dataset-train-split", "dataset-test-split", "dataset-kwargs", "dataset-prepared-path", "prompt-column"},
	"use --data-cache DIR":                                        {"cache-dir", "dataset-cache"},
	"use --log-with jsonl --logging-dir DIR":                      {"log-file", "log-dir"},
	noEffectHint: {"attn-implementation", "flash-attention", "flash-attn", "xformers-attention", "sdp-attention", "use-flash-attention-2", "torch-compile", "use-liger-kernel", "use-unsloth", "dataloader-num-workers", "dataloader-pin-memory", "dataset-num-proc", "preprocessing-num-workers", "remove-unused-columns", "trust-remote-code", "pad-to-sequence-len", "pad-to-multiple-of", "strict", "use-cpu", "no-cuda", "local-rank", "low-cpu-mem-usage", "use-cache", "do-train", "save-safetensors", "disable-tqdm", "plugins", "eval-sample-packing", "save-only-model", "model-type", "is-llama-derived-model", "debug", "include-tokens-per-second", "include-num-input-tokens-seen", "average-tokens-across-devices", "ddp-find-unused-parameters", "auto-find-batch-size",
		"torch-compile-backend", "torch-compile-mode", "liger-kernel-config", "torch-empty-cache-steps", "log-on-each-node", "log-level", "log-level-replica", "run-name", "project", "prediction-loss-only", "eval-accumulation-steps", "batch-eval-metrics", "eval-do-concat-batches", "eval-use-gather-object",
		"save-on-each-node", "enable-jit-checkpoint", "full-determinism", "dataloader-persistent-workers", "dataloader-prefetch-factor", "dataloader-multiprocessing-context", "dataloader-in-order", "ddp-bucket-cap-mb", "ddp-broadcast-buffers", "ddp-static-graph", "ddp-timeout", "skip-memory-metrics", "logging-nan-inf-filter",
		"log-completions", "num-completions-to-print", "wandb-log-unique-prompts", "cache-implementation", "fan-in-fan-out"},
	lackHint: {"eval-delay", "eval-on-start", "dataloader-drop-last", "label-names", "optim-target-modules", "eval-packing", "truncation-mode", "disable-dropout", "loss-weights", "f-divergence-type", "f-alpha-divergence-coef", "use-weighting", "rpo-alpha", "ld-alpha", "discopop-tau", "ref-model-mixup-alpha", "ref-model-sync-steps",
		"min-p", "repetition-penalty", "delta", "importance-sampling-level", "mask-truncated-completions", "steps-per-generation", "generation-batch-size", "init-lora-weights", "layers-to-transform", "rank-pattern", "alpha-pattern", "bias", "lora-bias", "do-predict"},
}

func hintsOf(foreign map[string][]string) map[string]string {
	hints := map[string]string{}
	for hint, names := range foreign {
		for _, name := range names {
			hints["--"+name] = hint
		}
	}
	return hints
}
