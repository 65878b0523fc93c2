/* Functions of float32 without a library: each within about two units of the last place.
 *
 * An argument is reduced to a short interval, on which a polynomial was fitted. */
#ifndef TOSAIC_FLOAT_H
#define TOSAIC_FLOAT_H

#include "elementwise.h"

TK_HOT float tk_from_bits(uint32_t bits)
{
    float v;
    TK_MEMCPY(&v, &bits, sizeof v);
    return v;
}

TK_HOT float tk_infinity(void) { return tk_from_bits(0x7F800000u); }

TK_HOT float tk_nan(void) { return tk_from_bits(0x7FC00000u); }

/* 2^n for n from -126 to 127. */
TK_HOT float tk_power_of_two(int32_t n) { return tk_from_bits((uint32_t)(n + 127) << 23); }

/* The larger and the smaller of two, a NaN if there is one, or the other of them. */
TK_HOT float tk_maximum(float a, float b) { return a > b || a != a ? a : b; }

TK_HOT float tk_minimum(float a, float b) { return a < b || a != a ? a : b; }

TK_HOT float tk_fmax(float a, float b) { return a > b || b != b ? a : b; }

TK_HOT float tk_fmin(float a, float b) { return a < b || b != b ? a : b; }

TK_COLD float tk_floor(float x)
{
    float whole;
    if (!(x > -8388608.0F && x < 8388608.0F)) {
        return x;
    }
    whole = (float)(int32_t)x;
    return whole > x ? whole - 1.0F : whole;
}

TK_COLD float tk_ceil(float x) { return -tk_floor(-x); }

/* The nearest integer within limits, ties to even. */
TK_COLD int32_t tk_float_to_int(float x, int32_t low, int32_t high, int32_t of_nan)
{
    return x != x ? of_nan : tk_clamp(tk_nearest(x), low, high);
}

/* 2^n · e^r for |r| up to ln 2 / 2; the power in two parts, as a result may be subnormal. */
TK_COLD float tk_exp_part(float r, int32_t n)
{
    const float p = 0.5F + r * (0.16666577F + r * (0.041666465F + r * (0.0083631756F + r * 0.0013933644F)));
    return (1.0F + (r + r * r * p)) * tk_power_of_two(n >> 1) * tk_power_of_two(n - (n >> 1));
}

TK_COLD float tk_exp(float x)
{
    float n;
    if (!(x < 88.73F)) {
        return x != x ? x : tk_infinity();
    }
    if (x < -104.0F) {
        return 0.0F;
    }
    n = tk_floor(x * 1.44269504F + 0.5F);
    return tk_exp_part((x - n * 0.693359375F) + n * 2.12194440e-4F, (int32_t)n);
}

/* The exponent of a positive number, and its fraction from the square root of 1/2 to that of 2. */
TK_COLD int32_t tk_split(float x, float *fraction)
{
    const int32_t is_small = x < 1.17549435e-38F;
    uint32_t bits;
    int32_t n;
    if (is_small) {
        x *= 8388608.0F;
    }
    TK_MEMCPY(&bits, &x, sizeof bits);
    n = (int32_t)((bits - 0x3F3504F3u) >> 23) - ((bits < 0x3F3504F3u) ? 512 : 0);
    *fraction = tk_from_bits(bits - ((uint32_t)n << 23));
    return is_small ? n - 23 : n;
}

TK_COLD float tk_log(float x)
{
    float f, n, s, z, half;
    if (!(x > 0.0F)) {
        return x == 0.0F ? -tk_infinity() : tk_nan();
    }
    if (x >= tk_infinity()) {
        return x;
    }
    n = (float)tk_split(x, &f);
    f -= 1.0F;
    s = f / (2.0F + f);
    z = s * s;
    half = 0.5F * f * f;
    z *= 0.666666666F + z * (0.400001224F + z * (0.285507715F + z * 0.23331553F));
    return n * 0.693359375F + (f - (half - (s * (half + z) - n * 2.12194440e-4F)));
}

/* x^y for a positive base: the logarithm has to have more digits than a float. */
TK_COLD float tk_pow(float x, float y)
{
    float fraction;
    double s, z, log2, n;
    if (x == 0.0F) {
        return y > 0.0F ? 0.0F : y < 0.0F ? tk_infinity() : 1.0F;
    }
    if (!(x > 0.0F) || y != y) {
        return tk_nan();
    }
    n = tk_split(x, &fraction);
    s = ((double)fraction - 1.0) / ((double)fraction + 1.0);
    z = s * s;
    z = 1.0 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11 + z / 13)))));
    log2 = y * (n + 2.8853900817779268 * s * z);
    if (!(log2 < 128.0)) {
        return log2 != log2 ? tk_nan() : tk_infinity();
    }
    if (log2 < -150.0) {
        return 0.0F;
    }
    n = (double)tk_floor((float)log2 + 0.5F);
    return tk_exp_part((float)((log2 - n) * 0.69314718055994531), (int32_t)n);
}

TK_COLD float tk_sigmoid(float x)
{
    const float e = tk_exp(x < 0.0F ? x : -x);
    return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

TK_COLD float tk_tanh(float x)
{
    const float a = x < 0.0F ? -x : x, z = x * x;
    if (a < 0.625F) {
        return x + x * z * (-0.333333291F + z * (0.133327806F + z * (-0.0538523428F + z * (0.0210031135F + z * -0.00610434763F))));
    }
    if (a < 10.0F) {
        const float r = 1.0F - 2.0F / (tk_exp(2.0F * a) + 1.0F);
        return x < 0.0F ? -r : r;
    }
    return x != x ? x : x < 0.0F ? -1.0F : 1.0F;
}

TK_COLD float tk_erf(float x)
{
    const float a = x < 0.0F ? -x : x, z = x * x;
    if (a < 1.0F) {
        const float p = 0.00522105341F + z * (-0.000848439653F + z * (0.000112682537F + z * -9.67359044e-06F));
        return x * (1.12837917F + z * (-0.376126385F + z * (0.112837826F + z * (-0.0268654383F + z * p))));
    }
    if (a < 4.0F) {
        const float t = 1.0F / a;
        const float p = 0.621802406F + t * (-0.982770579F + t * (0.762702045F + t * (-0.314059267F + t * 0.0548653837F)));
        const float q = 0.563977524F + t * (0.00317053118F + t * (-0.298699239F + t * (0.0165947967F + t * p)));
        const float r = 1.0F - tk_exp(-z) * t * q;
        return x < 0.0F ? -r : r;
    }
    return x != x ? x : x < 0.0F ? -1.0F : 1.0F;
}

/* The sine of an angle and a number of right angles; one beyond 2^30 is taken as 0, and what is not
 * finite is a NaN. */
TK_COLD float tk_sine(float x, int32_t turn)
{
    double whole = 0.0;
    float r, z;
    if (x - x != 0.0F) {
        return tk_nan();
    }
    if (x > -1073741824.0F && x < 1073741824.0F) {
        const int32_t k = (int32_t)((double)x * 0.63661977236758138 + (x < 0.0F ? -0.5 : 0.5));
        whole = k;
        turn += k & 3;
    } else {
        x = 0.0F;
    }
    r = (float)(((double)x - whole * 1.5707963267341256) - whole * 6.0771005065061922e-11);
    z = r * r;
    if (turn & 1) {
        r = (1.0F - 0.5F * z) + z * z * (0.0416666646F + z * (-0.00138883002F + z * 2.45475886e-05F));
    } else {
        r += r * z * (-0.166666667F + z * (0.00833333188F + z * (-0.000198400873F + z * 2.7249981e-06F)));
    }
    return turn & 2 ? -r : r;
}

/* 1 / sqrt(x): a first guess from the bits, then Newton's steps. */
TK_COLD float tk_rsqrt(float x)
{
    float y, scale = 1.0F;
    uint32_t bits;
    int32_t step;
    if (!(x > 0.0F)) {
        return x == 0.0F ? 1.0F / x : tk_nan();
    }
    if (x >= tk_infinity()) {
        return 0.0F;
    }
    if (x < 1.17549435e-38F) {
        x *= 16777216.0F;
        scale = 4096.0F;
    }
    TK_MEMCPY(&bits, &x, sizeof bits);
    y = tk_from_bits(0x5F3759DFu - (bits >> 1));
    for (step = 0; step < 3; ++step) {
        y *= 1.5F - 0.5F * x * y * y;
    }
    return (y + 0.5F * y * (1.0F - x * y * y)) * scale;
}

#endif
