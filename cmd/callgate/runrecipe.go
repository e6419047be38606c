package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// recipe is how one agent is sent to callgate where the variables that every
// program gets are not enough, or not all there is to say.
type recipe struct {
	name string
	// programs are the base names by which the agent is recognised.
	programs []string
	// apis are the wire formats that the agent may speak; callgate must read
	// one of them.
	apis []string
	// sets is what the recipe does, for people.
	sets string
	// prepare does it; nil where the variables are enough.
	prepare func(*launch) error
}

// readAPIs are the wire formats that this version reads calls in. A test holds
// them against the dialects that the proxy is built with.
var readAPIs = []string{"anthropic", "gemini", "ollama", "openai-chat", "openai-responses"}

// recipes are the agents that callgate run knows.
func recipes() []recipe {
	return []recipe{
		{
			name: "claude", programs: []string{"claude"}, apis: []string{"anthropic"},
			sets:    "ANTHROPIC_BASE_URL; --settings where the user's settings name another one",
			prepare: prepareClaude,
		},
		{
			name: "codex", programs: []string{"codex"}, apis: []string{"openai-responses"},
			sets:    "-c openai_base_url, and -c model_providers.NAME.base_url for each provider of config.toml",
			prepare: prepareCodex,
		},
		{
			name: "copilot", programs: []string{"copilot"}, apis: []string{"openai-chat", "anthropic", "openai-responses"},
			sets:    "COPILOT_PROVIDER_BASE_URL for a key of one's own, COPILOT_API_URL for a login at GitHub",
			prepare: prepareCopilot,
		},
		{
			name: "gemini", programs: []string{"gemini", "gemini-cli"}, apis: []string{"gemini"},
			sets:    "GOOGLE_GEMINI_BASE_URL, GOOGLE_VERTEX_BASE_URL and CODE_ASSIST_ENDPOINT where they are set",
			prepare: prepareGemini,
		},
		{
			name: "qwen", programs: []string{"qwen", "qwen-code"}, apis: []string{"openai-chat", "anthropic"},
			sets:    "OPENAI_BASE_URL and ANTHROPIC_BASE_URL; QWEN_CODE_SYSTEM_SETTINGS_PATH where the user's settings name base URLs",
			prepare: prepareQwen,
		},
		{
			name: "opencode", programs: []string{"opencode", "opencode-ai"}, apis: []string{"openai-chat", "anthropic"},
			sets:    "OPENCODE_CONFIG_CONTENT: options.baseURL of each provider, and no provider but these",
			prepare: prepareOpencode,
		},
		{
			name: "pi", programs: []string{"pi", "pi-coding-agent"}, apis: []string{"openai-chat", "anthropic"},
			sets:    "PI_CODING_AGENT_DIR: the user's own directory with another models.json",
			prepare: preparePi,
		},
		{
			name: "cline", programs: []string{"cline"}, apis: []string{"openai-chat", "anthropic"},
			sets:    "CLINE_PROVIDER_SETTINGS_PATH: the user's providers.json with other base URLs; a hub of its own",
			prepare: prepareCline,
		},
	}
}

// noRecipe is the name that chooses none.
const noRecipe = "none"

// runners start a program that is named by an argument of theirs.
var runners = []string{"npx", "bunx", "pnpx", "pnpm", "yarn", "bun", "node", "deno", "uvx", "uv", "python", "python3", "env"}

// findRecipe recognises the agent by the name of the program, and gives where
// its own arguments begin.
func findRecipe(program string, args []string) (r *recipe, at int) {
	all := recipes()
	named := func(word string) *recipe {
		word = programWord(word)
		i := slices.IndexFunc(all, func(r recipe) bool { return slices.Contains(r.programs, word) })
		if i < 0 {
			return nil
		}
		return &all[i]
	}
	if r := named(program); r != nil {
		return r, 0
	}
	if slices.Contains(runners, programWord(program)) {
		for i, a := range args {
			if strings.HasPrefix(a, "-") {
				continue
			}
			if r := named(a); r != nil {
				return r, i + 1
			}
		}
	}
	return nil, 0
}

// programWord is the name of a program without its directory, a package's
// scope and version, and the ending of a script.
func programWord(s string) string {
	s = filepath.Base(s)
	if i := strings.IndexByte(s, '@'); i > 0 {
		s = s[:i]
	}
	for _, end := range []string{".js", ".mjs", ".cjs", ".py", ".sh", ".exe"} {
		s = strings.TrimSuffix(s, end)
	}
	return s
}

// chooseRecipe gives the recipe that a flag names, or the one of the program.
func chooseRecipe(flag, program string, args []string) (r *recipe, at int, err error) {
	found, at := findRecipe(program, args)
	switch flag {
	case "":
		return found, at, nil
	case noRecipe:
		return nil, 0, nil
	}
	all := recipes()
	i := slices.IndexFunc(all, func(r recipe) bool { return r.name == flag })
	if i < 0 {
		names := make([]string, len(all))
		for i, r := range all {
			names[i] = r.name
		}
		return nil, 0, usagef("--recipe %q: there is none of that name; use %s or %s", flag, strings.Join(names, ", "), noRecipe)
	}
	if found == nil || found.name != flag {
		at = 0
	}
	return &all[i], at, nil
}

// unread says why callgate could do nothing for an agent, nil where it reads
// what the agent speaks.
func (r *recipe) unread() error {
	if r == nil || slices.ContainsFunc(r.apis, func(a string) bool { return slices.Contains(readAPIs, a) }) {
		return nil
	}
	what := "nothing of it would be gated"
	if r.prepare != nil {
		what = "every call would be withheld"
	}
	return ungated{fmt.Sprintf("%s speaks %s, which this version does not read: %s", r.name, strings.Join(r.apis, ", "), what)}
}

// prepare makes everything ready for the agent.
func (l *launch) prepare(r *recipe) error {
	if err := l.adopt(); err != nil {
		return err
	}
	l.variables()
	if r == nil || r.prepare == nil {
		return nil
	}
	return r.prepare(l)
}

// knownProvider is a provider that agents know without being told its URL.
type knownProvider struct {
	// name is what callgate calls it, and where the agent differs, what pi and
	// opencode call it; "-" is an agent that does not know it.
	name, pi, opencode string
	// url is the base URL, and opencodeURL that of opencode where it differs.
	url, opencodeURL string
	// key is the variable that holds its key, "" where it can be used without.
	key string
}

// knownProviders are as pi 1.6 and opencode 1.18 have them. Those with a
// signature over the host (Bedrock), with an address made of several parts
// (Azure, Cloudflare, Vertex) or with a login of their own (Copilot, ChatGPT)
// cannot be sent elsewhere by a base URL.
var knownProviders = []knownProvider{
	{name: "openai", url: "https://api.openai.com/v1", key: "OPENAI_API_KEY"},
	{name: "ant-ling", opencode: "-", url: "https://api.ant-ling.com/v1", key: "ANT_LING_API_KEY"},
	{name: "anthropic", url: "https://api.anthropic.com", opencodeURL: "https://api.anthropic.com/v1", key: "ANTHROPIC_API_KEY"},
	{name: "baseten", opencode: "-", url: "https://inference.baseten.co/v1", key: "BASETEN_API_KEY"},
	{name: "cerebras", url: "https://api.cerebras.ai/v1", key: "CEREBRAS_API_KEY"},
	{name: "deepseek", url: "https://api.deepseek.com", key: "DEEPSEEK_API_KEY"},
	{name: "fireworks", opencode: "fireworks-ai", url: "https://api.fireworks.ai/inference", opencodeURL: "https://api.fireworks.ai/inference/v1", key: "FIREWORKS_API_KEY"},
	{name: "google", url: "https://generativelanguage.googleapis.com/v1beta", key: "GEMINI_API_KEY"},
	{name: "groq", url: "https://api.groq.com/openai/v1", key: "GROQ_API_KEY"},
	{name: "huggingface", url: "https://router.huggingface.co/v1", key: "HF_TOKEN"},
	{name: "kimi-coding", opencode: "-", url: "https://api.kimi.com/coding/v1", key: "KIMI_API_KEY"},
	{name: "meta", opencode: "-", url: "https://api.meta.ai/v1", key: "META_API_KEY"},
	{name: "minimax", opencode: "-", url: "https://api.minimax.io/anthropic", key: "MINIMAX_API_KEY"},
	{name: "minimax-cn", opencode: "-", url: "https://api.minimaxi.com/anthropic", key: "MINIMAX_CN_API_KEY"},
	{name: "mistral", url: "https://api.mistral.ai", opencodeURL: "https://api.mistral.ai/v1", key: "MISTRAL_API_KEY"},
	{name: "moonshotai", url: "https://api.moonshot.ai/v1", key: "MOONSHOT_API_KEY"},
	{name: "moonshotai-cn", url: "https://api.moonshot.cn/v1", key: "MOONSHOT_API_KEY"},
	{name: "nvidia", opencode: "-", url: "https://integrate.api.nvidia.com/v1", key: "NVIDIA_API_KEY"},
	{name: "openrouter", url: "https://openrouter.ai/api/v1", key: "OPENROUTER_API_KEY"},
	{name: "qwen-token-plan", opencode: "-", url: "https://token-plan.maas.qwencloudapi.com/compatible-mode/v1", key: "QWEN_TOKEN_PLAN_API_KEY"},
	{name: "qwen-token-plan-cn", opencode: "-", url: "https://token-plan.maas.qianwenaiapi.com/compatible-mode/v1", key: "QWEN_TOKEN_PLAN_CN_API_KEY"},
	{name: "qwen-token-plan-individual", opencode: "-", url: "https://token-plan.maas.qwencloudapi.com/compatible-mode/v1", key: "QWEN_TOKEN_PLAN_INDIVIDUAL_API_KEY"},
	{name: "qwen-token-plan-individual-cn", opencode: "-", url: "https://token-plan.maas.qianwenaiapi.com/compatible-mode/v1", key: "QWEN_TOKEN_PLAN_INDIVIDUAL_CN_API_KEY"},
	{name: "together", opencode: "-", url: "https://api.together.ai/v1", key: "TOGETHER_API_KEY"},
	{name: "vercel-ai-gateway", opencode: "-", url: "https://ai-gateway.vercel.sh", key: "AI_GATEWAY_API_KEY"},
	{name: "xai", url: "https://api.x.ai/v1", key: "XAI_API_KEY"},
	{name: "xiaomi", opencode: "-", url: "https://api.xiaomimimo.com/v1", key: "XIAOMI_API_KEY"},
	{name: "xiaomi-token-plan-ams", opencode: "-", url: "https://token-plan-ams.xiaomimimo.com/v1", key: "XIAOMI_TOKEN_PLAN_AMS_API_KEY"},
	{name: "xiaomi-token-plan-cn", opencode: "-", url: "https://token-plan-cn.xiaomimimo.com/v1", key: "XIAOMI_TOKEN_PLAN_CN_API_KEY"},
	{name: "xiaomi-token-plan-sgp", opencode: "-", url: "https://token-plan-sgp.xiaomimimo.com/v1", key: "XIAOMI_TOKEN_PLAN_SGP_API_KEY"},
	{name: "zai", opencode: "-", url: "https://api.z.ai/api/coding/paas/v4", key: "ZAI_API_KEY"},
	{name: "zai-coding-cn", opencode: "-", url: "https://open.bigmodel.cn/api/coding/paas/v4", key: "ZAI_CODING_CN_API_KEY"},
	{name: "zen", pi: "-", opencode: "opencode", url: "https://opencode.ai/zen/v1"},
}

// in gives what an agent calls the provider and where it looks for it; name is
// "" where the agent does not know it.
func (p knownProvider) in(agent string) (name, url string) {
	name, url = p.pi, p.url
	if agent == "opencode" {
		name, url = p.opencode, firstOf(p.opencodeURL, p.url)
	}
	if name == "-" {
		return "", ""
	}
	return firstOf(name, p.name), url
}
