# The LoRA run that check-lora-memory.sh and check-train-memory.sh share, to be sourced in the
# repository's root: rank 16 (LORA_RANK) on every linear map, one sequence of 256 tokens (SEQUENCE), blocks computed again.

# lora_prepare DIR builds train and writes its texts there.
lora_prepare() {
	CGO_ENABLED=0 go build -o "$1/train" ./cmd/train
	local i k
	for i in 1 2 3 4; do
		printf '{"text": "%s"}\n' "$(for k in $(seq 200); do printf 'word %d of text %d, ' $((k * i)) "$i"; done)"
	done >"$1/text.jsonl"
}

# lora_run DIR MODEL OUTPUT STEPS becomes the run.
lora_run() {
	exec "$1/train" run --model "$2" --data "$1/text.jsonl" --output "$3" --lora r=${LORA_RANK:-16},alpha=32,targets=all-linear \
		--batch 1 --sequence ${SEQUENCE:-256} --max-steps "$4" --save-steps=-1 --recompute on
}
