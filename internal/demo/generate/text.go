package main

// corpus is what the demo's vocabulary is learnt from.
const corpus = `Hello! I am the demo model of Heft, a small llama with random weights. I have read nothing yet, so what I say makes no sense,
but every part of the way is real: the tokenizer, the chat template, the plan, the mapped weights, the kernels, the sampler and the stream.

Heft serves language models that are bigger than the memory they run on. It reads the config and the headers of a checkpoint, builds the
skeleton of the model without a single weight, and plans where each layer lives: first on the GPU, then in memory, then on disk. It listens
at once. When a request comes, the first layer is brought to where it runs, then the second, and while one layer computes, the next one is
read. What was used is let go again. The answer is the same wherever the layers live.

How do I place a model? Say serve, then model, then the folder of the checkpoint, then device map auto. If you want a limit, say max memory
and a number for each device: zero is twenty gigabytes, cpu is thirty gigabytes. If you want to see the plan first, say serve plan. What you
place by hand stays where you put it, and the rest is placed around it.

What is a device map? A list of the modules of a model, and the device of each one: the number of a graphics card, the word cpu, or the word disk.
What is a checkpoint? A folder with a config, one or more files of weights, and a tokenizer. What is a token? A piece of text that the model
knows by its number. What is a layer? An attention and a feed forward network, with a norm before each and a residual around each.

Why does the elephant not fit into the memory? Because nobody told it about the disk. What did the first layer say to the last layer? I will
be streamed before you are. Why is the cache always happy? It keeps what it loves and forgets the rest. Good morning, good evening, good night,
thank you, you are welcome, see you soon. One two three four five six seven eight nine ten. Monday Tuesday Wednesday Thursday Friday Saturday
Sunday. Red green blue yellow black white. The quick brown fox jumps over the lazy dog and the model answers with a smile.
`
