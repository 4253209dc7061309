/* What every library shares: the few functions of numba's runtime that kernels call, and reading arguments. */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

/* ---- numba's runtime: arrays that a kernel makes, counted and freed as numba's own code expects ---- */

typedef struct {
    size_t count;
    void (*destructor)(void *, size_t, void *);
    void *destructor_info;
    void *data;
    size_t size;
    void *allocator;
} MemInfo; /* the layout of numba's NRT_MemInfo */

#if defined(__linux__) && defined(MADV_HUGEPAGE)
/* From here on in pages of 2 MB, as NumPy's arrays: the first writes to small ones take longer. No room is added for
   their alignment, since malloc keeps what is freed for the next call only up to a size. */
#define LARGE ((size_t)1 << 22)
#define PAGE ((uintptr_t)4096)
#endif

__attribute__((visibility("hidden"))) void *NRT_MemInfo_alloc_aligned(size_t size, uint32_t align) {
    char *base = size > SIZE_MAX / 2 ? NULL : malloc(sizeof(MemInfo) + size + align);
    if (!base) return NULL; /* the kernel then returns an error code */
    MemInfo *made = (MemInfo *)base;
    memset(made, 0, sizeof *made);
    uintptr_t data = (uintptr_t)(base + sizeof(MemInfo));
    made->count = 1;
    made->size = size;
    made->data = (void *)((data + align - 1) & ~(uintptr_t)(align - 1));
#ifdef LARGE
    if (size >= LARGE) {
        uintptr_t first = (data + PAGE - 1) & ~(PAGE - 1);
        madvise((void *)first, (data + size - first) & ~(PAGE - 1), MADV_HUGEPAGE);
    }
#endif
    return made;
}

__attribute__((visibility("hidden"))) void *NRT_MemInfo_alloc_safe_aligned(size_t size, uint32_t align) {
    return NRT_MemInfo_alloc_aligned(size, align);
}

__attribute__((visibility("hidden"))) void NRT_MemInfo_call_dtor(MemInfo *made) { free(made); }
__attribute__((visibility("hidden"))) void *NRT_Allocate(size_t size) { return malloc(size); }
__attribute__((visibility("hidden"))) void NRT_Free(void *memory) { free(memory); }
__attribute__((visibility("hidden"))) double numba_nextafter(double x, double to) { return nextafter(x, to); }

/* ---- arguments ---- */

#define MOST_DIMENSIONS 3

typedef struct {
    const char *name;
    char kind; /* d: float64, f: float32 (arrays only), l: int64, b: boolean */
    int dimensions; /* 0: a number */
    int written;
} Parameter;

typedef struct {
    void *data;
    int64_t size, shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];
    double d;
    int64_t l;
    uint8_t b;
    int held;
    Py_buffer buffer;
} Argument;

static void release(Argument *arguments, int count) {
    for (int i = 0; i < count; i++)
        if (arguments[i].held) PyBuffer_Release(&arguments[i].buffer);
}

static const char *type_name(char kind) { return kind == 'd' ? "float64" : kind == 'f' ? "float32" : "int64"; }

static int refuse(const char *kernel, const Parameter *p, const char *got) {
    PyErr_Format(PyExc_TypeError, "%s: %s must be %s%s array of %s with %d dimension%s, got %s", kernel, p->name,
                 p->written ? "a writable " : "a ", "C-contiguous", type_name(p->kind),
                 p->dimensions, p->dimensions == 1 ? "" : "s", got);
    return 0;
}

static int read_number(PyObject *object, const Parameter *p, Argument *into) {
    if (p->kind == 'd') into->d = PyFloat_AsDouble(object);
    else if (p->kind == 'l') into->l = PyLong_AsLongLong(object);
    else { int truth = PyObject_IsTrue(object); if (truth < 0) return 0; into->b = (uint8_t)truth; return 1; }
    return !PyErr_Occurred();
}

static int has_type(const char *format, char kind) {
    if (!format) return 0;
    if (*format == '@' || *format == '=') format++;
    if (format[0] == 0 || format[1] != 0) return 0;
    if (kind == 'f') return *format == 'f';
    return kind == 'd' ? *format == 'd' : *format == 'q' || (*format == 'l' && sizeof(long) == 8);
}

static int read_array(const char *kernel, PyObject *object, const Parameter *p, Argument *into) {
    Py_buffer *b = &into->buffer;
    if (PyObject_GetBuffer(object, b, PyBUF_STRIDES | PyBUF_FORMAT)) {
        PyErr_Clear();
        return refuse(kernel, p, "no array");
    }
    into->held = 1;
    if (!has_type(b->format, p->kind)) return refuse(kernel, p, "another type of entries");
    if (b->ndim != p->dimensions) return refuse(kernel, p, "another number of dimensions");
    if (p->written && b->readonly) return refuse(kernel, p, "an array that is read-only");
    const int64_t item = p->kind == 'f' ? 4 : 8;
    if ((uintptr_t)b->buf % item) return refuse(kernel, p, "an array that is not aligned");
    int64_t size = 1, expected = item;
    for (int k = b->ndim - 1; k >= 0; k--) {
        into->shape[k] = b->shape[k];
        into->strides[k] = expected;
        size *= b->shape[k];
        expected *= b->shape[k];
    }
    for (int k = 0; k < b->ndim; k++) /* an axis of one entry, or an empty array, may have any strides */
        if (size && b->shape[k] > 1 && b->strides[k] != into->strides[k])
            return refuse(kernel, p, "an array with gaps or in another order");
    into->data = b->buf;
    into->size = size;
    return 1;
}

static int read_arguments(const char *kernel, PyObject *const *given, Py_ssize_t count, int wanted,
                          const Parameter *parameters, Argument *into) {
    if (count != wanted) {
        PyErr_Format(PyExc_TypeError, "%s takes %d arguments, got %zd", kernel, wanted, count);
        return 0;
    }
    for (int i = 0; i < wanted; i++) into[i].held = 0;
    for (int i = 0; i < wanted; i++) {
        const Parameter *p = &parameters[i];
        if (p->dimensions ? !read_array(kernel, given[i], p, &into[i]) : !read_number(given[i], p, &into[i])) {
            release(into, wanted);
            return 0;
        }
    }
    return 1;
}

static PyObject *failed(const char *kernel, int code) {
    return PyErr_Format(PyExc_MemoryError, "%s stopped with code %d: no memory for its work arrays", kernel, code);
}
