package forward

import "strings"

// providerHosts are hosts at which model providers answer, with those that
// serve people who are logged in instead of having a key. A tunnel to one of
// them leads around the gate. A star stands for any part of one label.
var providerHosts = []string{
	// OpenAI
	"api.openai.com", "*.api.openai.com", "chatgpt.com", "*.chatgpt.com", "chat.openai.com",
	// Anthropic
	"api.anthropic.com", "*.api.anthropic.com", "claude.ai", "*.claude.ai",
	// Google
	"generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "*-cloudcode-pa.googleapis.com",
	"aiplatform.googleapis.com", "*-aiplatform.googleapis.com", "aiplatform.*.rep.googleapis.com", "*-aiplatform.*.rep.googleapis.com",
	// GitHub
	"api.githubcopilot.com", "*.githubcopilot.com", "*.*.githubcopilot.com", "copilot-proxy.githubusercontent.com", "models.github.ai",
	// Amazon
	"bedrock-runtime.*.amazonaws.com", "bedrock-runtime-fips.*.amazonaws.com", "bedrock-runtime.*.amazonaws.com.cn",
	"bedrock-runtime.*.api.aws", "bedrock-mantle.*.api.aws", "*.bedrock-runtime.*.vpce.amazonaws.com",
	"bedrock-agent-runtime.*.amazonaws.com", "q.*.amazonaws.com", "codewhisperer.*.amazonaws.com",
	// Microsoft
	"*.openai.azure.com", "*.openai.azure.us", "*.openai.azure.cn", "*.services.ai.azure.com", "*.cognitiveservices.azure.com",
	"models.inference.ai.azure.com", "*.models.ai.azure.com", "*.*.models.ai.azure.com", "*.inference.ml.azure.com", "*.*.inference.ml.azure.com",
	// Others, and those that pass requests on to many
	"openrouter.ai", "*.openrouter.ai", "api.mistral.ai", "codestral.mistral.ai", "api.groq.com", "api.together.xyz", "api.together.ai",
	"api.fireworks.ai", "api.deepseek.com", "api.x.ai", "*.api.x.ai", "cli-chat-proxy.grok.com", "api.cohere.com", "api.cohere.ai", "api.perplexity.ai",
	"api.cerebras.ai", "router.huggingface.co", "api-inference.huggingface.co", "*.endpoints.huggingface.cloud", "*.*.*.endpoints.huggingface.cloud",
	"api.moonshot.ai", "api.moonshot.cn", "api.kimi.com", "dashscope.aliyuncs.com", "dashscope-*.aliyuncs.com", "chat.qwen.ai", "portal.qwen.ai",
	"open.bigmodel.cn", "api.z.ai", "api.minimax.io", "api.minimaxi.com", "ark.*.volces.com", "ollama.com", "integrate.api.nvidia.com",
	"api.deepinfra.com", "api.sambanova.ai", "api.hyperbolic.xyz", "api.novita.ai", "inference.baseten.co", "api.replicate.com",
	"ai-gateway.vercel.sh", "gateway.ai.cloudflare.com", "opencode.ai", "api.opencode.ai", "api.cline.bot", "api.kilo.ai", "*.cursor.sh",
	"server.codeium.com", "api.studio.nebius.com", "api.tokenfactory.nebius.com", "inference.do-ai.run", "models.dev.azure.com",
	// The name under which the true one of an encrypted hello is hidden.
	"cloudflare-ech.com",
}

// isProvider reports whether a name is one of a known provider.
func isProvider(host string) bool {
	for _, p := range providerHosts {
		if matches(p, host) {
			return true
		}
	}
	return false
}

// matches compares label by label.
func matches(pattern, host string) bool {
	for {
		p, prest, pmore := strings.Cut(pattern, ".")
		h, hrest, hmore := strings.Cut(host, ".")
		if before, after, star := strings.Cut(p, "*"); star {
			if len(h) <= len(before)+len(after) || !strings.HasPrefix(h, before) || !strings.HasSuffix(h, after) {
				return false
			}
		} else if p != h {
			return false
		}
		if pmore != hmore {
			return false
		}
		if !pmore {
			return true
		}
		pattern, host = prest, hrest
	}
}

// constraints gives the providers' hosts as name constraints take them, which
// know no stars: whole names, each with all below it.
func constraints() []string {
	var out []string
	for _, p := range providerHosts {
		for strings.HasPrefix(p, "*.") {
			p = p[len("*."):]
		}
		if !strings.Contains(p, "*") && p != "cloudflare-ech.com" {
			out = append(out, p)
		}
	}
	return out
}
