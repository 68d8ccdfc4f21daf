"""Functions of floats on whole vectors, between the loops of a body that is written in parts (see parts.py).

g++ has no vectors of its own for what these are made of: a scale by a power of two, a choice from a table in registers, an extreme that keeps
NaN. erf and tanh are polynomials about the nearest of 16 or 32 points; a table has the coefficients, the lowest first. Where the processor has no
such instructions, the loop is over the scalar function. Errors of all arguments are at most 0.9 (exp), 2.3 (erf) and 1.3 (tanh) units in the last
place.
"""

__all__ = ["FUNCTIONS", "VECTOR_FUNCTIONS"]

FUNCTIONS = frozenset({"exp", "erf", "tanh", "sigmoid"})
"""Scalar ops that there are as `tw_each_<op><N>(float*)`."""

# Minimax coefficients, fitted in float64 by least squares with weights that grow where the error is largest, and rounded to float32 one after
# the other, the rest being fitted anew each time.
VECTOR_FUNCTIONS = r"""
TW float tw_sigmoid(float v) { return 1.f / (1.f + tw_exp(-v)); }
#if defined(__AVX512F__)
#if defined(__clang__)
#define TW_MADD16(a, b, c) __builtin_elementwise_fma(a, b, c)
#else
#define TW_MADD16(a, b, c) __builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4)
#endif
typedef int32_t tw_sixteen_bits __attribute__((vector_size(64), may_alias));
TW tw_sixteen tw_all(float v) { return (tw_sixteen){} + v; }
TW tw_sixteen tw_size(tw_sixteen v) { return (tw_sixteen)((tw_sixteen_bits)v & INT32_MAX); }
TW tw_sixteen tw_signed(tw_sixteen size, tw_sixteen sign) {
  return (tw_sixteen)((tw_sixteen_bits)size | ((tw_sixteen_bits)sign & INT32_MIN)); }
// v * 2**n, rounded once; a whole number n.
TW tw_sixteen tw_scaled(tw_sixteen v, tw_sixteen n) {
  tw_sixteen r; asm("vscalefps %2, %1, %0" : "=v"(r) : "v"(v), "v"(n)); return r; }
// The elements of a table of 16 or 32 at the places that the lowest bits say.
TW tw_sixteen tw_looked_up(const float (&table)[16], tw_sixteen_bits at) {
  tw_sixteen r; asm("vpermps %2, %1, %0" : "=v"(r) : "v"(at), "vm"(*(const tw_sixteen*)table)); return r; }
TW tw_sixteen tw_looked_up(const float (&table)[32], tw_sixteen_bits at) {
  const tw_sixteen* t = (const tw_sixteen*)table;
  asm("vpermi2ps %2, %1, %0" : "+v"(at) : "v"(t[0]), "vm"(t[1])); return (tw_sixteen)at; }
// exp: 2**n * p(r) with |r| <= ln2 / 2; where |v| is larger than the limits, the result is 0 or infinite.
TW tw_sixteen tw_exp(tw_sixteen v) {
  const tw_sixteen x = tw_less(tw_all(89.f), tw_more(tw_all(-105.f), v)), shift = tw_all(12582912.f);
  const tw_sixteen n = TW_MADD16(x, tw_all(1.44269504088896341f), shift) - shift;
  tw_sixteen r = TW_MADD16(n, tw_all(-0.693145751953125f), x); r = TW_MADD16(n, tw_all(-1.42860682e-6f), r);
  tw_sixteen p = tw_all(0.0013821301981806755f);
  p = TW_MADD16(p, r, tw_all(0.008368668146431446f)); p = TW_MADD16(p, r, tw_all(0.04166825860738754f));
  p = TW_MADD16(p, r, tw_all(0.1666652113199234f)); p = TW_MADD16(p, r, tw_all(0.4999999403953552f));
  p = TW_MADD16(p, r, tw_all(1.f)); p = TW_MADD16(p, r, tw_all(1.f));
  return tw_scaled(p, n); }
TW tw_sixteen tw_sigmoid(tw_sixteen v) { return 1.f / (1.f + tw_exp(-v)); }
// An odd function that is 1 from the limit on, where the last polynomial has to give exactly that: what is left of 1 + erf(-x) would be
// multiplied by a large x in gelu. Elsewhere its polynomial about the nearest multiple of 1 / PER.
template <int TERMS, int POINTS> TW tw_sixteen tw_piecewise(
    const float (&table)[TERMS][POINTS], tw_sixteen v, float limit, float per, float distance) {
  const tw_sixteen x = tw_less(tw_all(limit), tw_size(v)), shift = tw_all(12582912.f), n = TW_MADD16(x, tw_all(per), shift);
  const tw_sixteen d = TW_MADD16(n - shift, tw_all(-distance), x);
  const tw_sixteen_bits at = (tw_sixteen_bits)n;
  tw_sixteen p = tw_looked_up(table[TERMS - 1], at);
#pragma GCC unroll 8
  for (int i = TERMS - 2; i >= 0; --i) p = TW_MADD16(p, d, tw_looked_up(table[i], at));
  return tw_signed(p, v); }
static const float tw_erf_table[6][16] __attribute__((aligned(64))) = {
  {0.f, 0.276326388f, 0.520499885f, 0.711155653f, 0.842700779f, 0.92290014f, 0.966105163f, 0.986671686f, 0.995322287f,
    0.998537302f, 0.999593019f, 0.999899387f, 0.999977887f, 0.999995708f, 0.999999285f, 0.999999881f},
  {1.12837911f, 1.06001425f, 0.87878263f, 0.642931104f, 0.415107489f, 0.236521125f, 0.118930288f, 0.0527749956f, 0.0206669867f,
    0.00714231934f, 0.00217828411f, 0.000586277281f, 0.000139253054f, 2.91890265e-05f, 5.39942675e-06f, 8.81415815e-07f},
  {0.f, -0.264999002f, -0.439388424f, -0.482204527f, -0.41510123f, -0.29565984f, -0.17840606f, -0.0923648924f, -0.041345235f,
    -0.0160793085f, -0.00543089956f, -0.00161677098f, -0.000406076491f, -0.000100542595f, -3.30281982e-05f, -4.22482231e-07f},
  {-0.376092434f, -0.309197724f, -0.146480381f, 0.0267739613f, 0.138371021f, 0.167533949f, 0.138752207f, 0.0901578069f,
    0.0482229702f, 0.0217245333f, 0.0083500687f, 0.00276029832f, 0.000789052399f, 0.000195787943f, 4.2288113e-05f,
    8.74025682e-06f},
  {0.f, 0.126092896f, 0.182127818f, 0.150662616f, 0.0688578039f, -0.0052909432f, -0.0436221175f, -0.0474118032f, -0.0337220654f,
    -0.018551046f, -0.00960655324f, -0.00299760676f, -0.00179791229f, 6.99443626e-05f, 0.000828500371f, -9.5e-05f},
  {0.110258095f, 0.0811357573f, 0.00833110232f, -0.052078262f, -0.0690609887f, -0.0469959453f, -0.0149322925f, 0.0065052486f,
    0.0130346427f, 0.0106481398f, 0.00612700731f, 0.00277131121f, 0.00102555403f, 0.000317780767f, 8.34795283e-05f,
    -8.35293977e-05f}};
TW tw_sixteen tw_erf(tw_sixteen v) { return tw_piecewise(tw_erf_table, v, 3.87f, 4.f, 0.25f); }
static const float tw_tanh_table[7][32] __attribute__((aligned(64))) = {
  {0.f, 0.27406159f, 0.509829998f, 0.687790215f, 0.809301078f, 0.886695147f, 0.933828056f, 0.961751938f, 0.978026092f,
    0.987420201f, 0.992812812f, 0.995898485f, 0.997660995f, 0.998666584f, 0.999240041f, 0.999566913f, 0.999753237f,
    0.999859393f, 0.999919891f, 0.999954343f, 0.999974012f, 0.999985158f, 0.999991536f, 0.999995172f, 0.999997258f, 0.99999845f,
    0.999999106f, 0.999999464f, 0.999999702f, 0.999999821f, 0.999999881f, 0.99999994f},
  {1.f, 0.92489028f, 0.740073442f, 0.526944637f, 0.345031768f, 0.213771716f, 0.127965182f, 0.0750332326f, 0.0434649177f,
    0.0250013564f, 0.014322754f, 0.0081861522f, 0.00467257015f, 0.00266503124f, 0.00151936046f, 0.000865988608f,
    0.000493517378f, 0.000281227607f, 0.000160248353f, 9.13099066e-05f, 5.20278372e-05f, 2.96448998e-05f, 1.68912629e-05f,
    9.62438662e-06f, 5.4838215e-06f, 3.12459088e-06f, 1.7803394e-06f, 1.01440719e-06f, 5.77991955e-07f, 3.29329907e-07f,
    1.87646549e-07f, 1.06917781e-07f},
  {0.f, -0.253477603f, -0.377332121f, -0.362436146f, -0.27924183f, -0.189547837f, -0.119508818f, -0.0721735731f, -0.0424893759f,
    -0.024691876f, -0.0142356008f, -0.00812754221f, -0.0046752342f, -0.00265164813f, -0.00152705959f, -0.000866291288f,
    -0.000516794797f, -0.000295926904f, -0.000177152993f, -9.02554821e-05f, -7.60658877e-05f, -1.2496851e-05f, -4.693687e-07f,
    4.61196805e-06f, -5.57475278e-06f, -1.44763162e-05f, 1.73963701e-06f, 2.53775615e-05f, 7.57049474e-06f, 1.24423404e-05f,
    2.2727234e-05f, 6.75e-06f},
  {-0.333324343f, -0.238834962f, -0.0543511994f, 0.0736224577f, 0.110976614f, 0.0968157277f, 0.0689361766f, 0.0443921648f,
    0.0270877182f, 0.0160426293f, 0.00934342761f, 0.00539035955f, 0.00309318304f, 0.00176958635f, 0.00101060397f,
    0.000576579303f, 0.00032877113f, 0.0001874031f, 0.000106805215f, 6.08642804e-05f, 3.46823836e-05f, 1.97623231e-05f,
    1.1260423e-05f, 6.41605993e-06f, 3.65580149e-06f, 2.08304527e-06f, 1.18688831e-06f, 6.7627218e-07f, 3.85321698e-07f,
    2.19554209e-07f, 1.25096108e-07f, 7.12783716e-08f},
  {0.f, 0.149995029f, 0.156051159f, 0.0713438466f, 0.00423556799f, -0.0229934193f, -0.0230237599f, -0.0172718596f,
    -0.0150622558f, -0.00693746284f, -0.00242032739f, -0.00600619754f, 0.000289888383f, -0.00219757599f, 0.000682960264f,
    -0.000196952533f, 0.00297212135f, 0.00188189337f, 0.00221417379f, -0.000171199135f, 0.00320481835f, -0.00230828626f,
    -0.00220674439f, -0.00191139325f, 1.03622542e-05f, 0.00152050494f, -0.00047239862f, -0.00353782577f, -0.00109238748f,
    -0.00171198009f, -0.00307149347f, -0.000743604731f},
  {0.131860256f, 0.0591945276f, -0.0416859388f, -0.0606564768f, -0.0321083292f, -0.00749407616f, 0.00268639298f, 0.00478092721f,
    0.00397313898f, 0.0027208461f, 0.00170700566f, 0.00102913484f, 0.000603565655f, 0.000348856527f, 0.000200444556f,
    0.000114799637f, 6.55644326e-05f, 3.76066637e-05f, 2.14364954e-05f, 1.22165602e-05f, 6.95351082e-06f, 3.96226869e-06f,
    2.26170368e-06f, 1.28990894e-06f, 7.34572325e-07f, 4.17653439e-07f, 2.37907969e-07f, 1.35455153e-07f, 7.7454871e-08f,
    4.39571011e-08f, 2.51315679e-08f, 1.42897019e-08f},
  {0.f, -0.0719586536f, -0.119120315f, -0.0288595445f, -0.0139455013f, 0.0208973158f, -0.0479394831f, -0.0458855443f,
    0.0912209675f, -0.0233017989f, -0.0714260489f, 0.112156056f, -0.0612672903f, 0.04405028f, -0.0398460478f, -0.00308290846f,
    -0.105155051f, -0.066234611f, -0.076017946f, 0.00471476465f, -0.108012222f, 0.0770435035f, 0.0737827718f, 0.0639638305f,
    -0.000408870343f, -0.0510038808f, 0.0158152971f, 0.118580043f, 0.0366114266f, 0.0573835708f, 0.102957398f, 0.0249251667f}};
TW tw_sixteen tw_tanh(tw_sixteen v) { return tw_piecewise(tw_tanh_table, v, 8.85f, 3.5555556f, 0.28125f); }
#define TW_EACH(NAME) template <int N> TW void tw_each_##NAME(float* v) { \
  tw_sixteen* at = (tw_sixteen*)v; for (int i = 0; i < N / 16; ++i) at[i] = tw_##NAME(at[i]); }
#else
#define TW_EACH(NAME) template <int N> TW void tw_each_##NAME(float* v) { \
  _Pragma("omp simd") for (int i = 0; i < N; ++i) v[i] = tw_##NAME(v[i]); }
#endif
TW_EACH(exp) TW_EACH(erf) TW_EACH(tanh) TW_EACH(sigmoid)
"""
